#!/bin/bash -l
#SBATCH --job-name=lattice
#SBATCH --ntasks=256
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2000M
#SBATCH --time=12:00:00
#SBATCH --constraint=infiniband
#SBATCH --switches=1@2:00:00
#SBATCH --hint=nomultithread
#GANGLINE --framework=MPI

module load openmpi/4.1
mpirun -np "$SLURM_NTASKS" ./lattice input.xml
