#!/bin/bash
#SBATCH --job-name=finetune
#SBATCH --dependency=afterok:118201
#SBATCH --gpus-per-node=4
#SBATCH --nodes=1
#SBATCH --time=10:00:00
#SBATCH --begin=now+1hour

python finetune.py --from checkpoints/last
