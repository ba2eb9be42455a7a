#!/bin/bash --login
#SBATCH --job-name=resnet50
#SBATCH --account=vision-lab
#SBATCH --qos=high
#SBATCH --gpus=a100:2
#SBATCH --cpus-per-gpu=16
#SBATCH --mem-per-gpu=110G
#SBATCH --time=1-06
#SBATCH --chdir=/work/resnet
#SBATCH --export=ALL,OMP_NUM_THREADS=16,WANDB_MODE=offline
#SBATCH --get-user-env

module purge
module load cuda/12.4
source activate torch
python -m torch.distributed.run --standalone --nproc-per-node 2 main.py --arch resnet50
