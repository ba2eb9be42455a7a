#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=32G
#SBATCH --time=0-4
#SBATCH --output=jupyter-%j.log
#SBATCH --nodelist=gpu07

port=$(shuf -i 8000-9999 -n 1)
jupyter lab --no-browser --ip=0.0.0.0 --port="$port"
