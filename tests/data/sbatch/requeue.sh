#!/bin/bash
#SBATCH --job-name=resumable
#SBATCH --nodes=2-4
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --time-min=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --licenses=simulator:2
#GANGLINE --restarts=5 --checkpoint=20m --expected=18h

trap 'touch checkpoint-now; wait' USR1
torchrun --nproc-per-node 8 train.py --resume auto &
wait
