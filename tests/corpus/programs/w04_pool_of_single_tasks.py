# pytorch/pytorch#135705: tensors that come from workers of a pool which end after one task
import torch
import torch.multiprocessing as mp


def embed(i):
    return torch.full((1000,), float(i))


def run():
    with mp.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        return [row.sum() for row in pool.map(embed, range(8), chunksize=1)]


if __name__ == "__main__":
    print(run())
