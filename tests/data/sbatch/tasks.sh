#!/bin/bash
#SBATCH --job-name=eval-suite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=12
#SBATCH --gpu-bind=closest
#SBATCH --distribution=block:cyclic
#SBATCH --ntasks-per-core=1
#SBATCH --time=3:30:00

srun --ntasks=16 python evaluate.py
