#!/bin/bash
#SBATCH -J sweep
#SBATCH -a 1-48%6
#SBATCH -p gpu
#SBATCH --gres=gpu:a100:1
#SBATCH -c 8
#SBATCH --mem-per-cpu=4G
#SBATCH -t 08:00:00
#SBATCH -o sweep_%A_%a.out

rate=$(sed -n "${SLURM_ARRAY_TASK_ID}p" rates.txt)
python fit.py --lr "$rate" --out "results/$SLURM_ARRAY_TASK_ID"
