"""A plain DDP job whose launcher sets RANK, WORLD_SIZE and the rest."""

import sys

import torch.distributed as dist
import training


def main(death: str) -> None:
    dist.init_process_group("gloo")
    loss = training.train_rank(death, dist.get_rank())
    if dist.get_rank() == 0:
        print(f"loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
