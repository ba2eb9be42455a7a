#!/bin/sh
#SBATCH --job-name="tokenise corpus"
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=120G
#SBATCH --time=90
#SBATCH --tmp=200G
#SBATCH --nice=100

python tokenise.py --workers "$SLURM_CPUS_PER_TASK" corpus/ shards/
