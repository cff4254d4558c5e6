"""A plain DDP job whose launcher is srun or mpirun: the rank is in their variables."""

import os
import sys

import torch.distributed as dist
import training

NAMES = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def main(death: str, port: str) -> None:
    rank, world = next((int(os.environ[a]), int(os.environ[b])) for a, b in NAMES if a in os.environ)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    loss = training.train_rank(death, rank)
    if rank == 0:
        print(f"loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
