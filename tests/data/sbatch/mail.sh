#!/bin/bash
#SBATCH --job-name=nightly
#SBATCH --gres=gpu:v100:4
#SBATCH --mem=0
#SBATCH --time=06:00:00
#SBATCH --mail-type=BEGIN,END,FAIL,TIME_LIMIT_80
#SBATCH --mail-user=mira@example.com
#SBATCH --comment="nightly regression of the main branch"
#SBATCH --reservation=nightly
#SBATCH --open-mode=append
#SBATCH --output=/home/mira/nightly.out

./regress.sh --all
