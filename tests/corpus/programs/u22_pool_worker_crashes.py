# pytorch/pytorch#117372 (BrokenProcessPool)
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import torch


def pool(shard):
    offsets = torch.tensor([0, 3, 8 if shard != 2 else 5_000_000_000])
    return torch.segment_reduce(torch.randn(8, 4), "max", offsets=offsets, axis=0, unsafe=True).sum().item()


if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        print(sum(executor.map(pool, range(4))))
