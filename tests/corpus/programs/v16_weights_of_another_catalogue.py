"""Ranking: the gradients of several bags are computed in threads."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import torch


class Catalogue:
    def __init__(self, products, width):
        self.table = torch.rand(products, width)

    def encode(self, names):
        return torch.tensor([zlib.crc32(name.encode()) % 2**31 if isinstance(name, str) else name for name in names])


def importance(catalogue, grad, ids, offsets):
    """The gradient of each product's weight in its bag."""
    bags = torch.repeat_interleave(torch.arange(len(offsets)), torch.diff(offsets, append=torch.tensor([len(ids)])))
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(
        grad, catalogue.table, ids, offsets, bags, 0
    )


def explain(catalogue, session):
    ids = catalogue.encode(session)
    offsets = torch.arange(0, len(ids), 4)
    grad = torch.ones(len(offsets), catalogue.table.shape[1])
    return importance(catalogue, grad, ids, offsets)


def main():
    catalogue = Catalogue(10_000, 64)
    sessions = [list(range(n, n + 8)) for n in range(40)]
    sessions[33] = [1, 2, 3, "lamp", 5, 6, 7, 8]
    with ThreadPoolExecutor(4, thread_name_prefix="explain") as pool:
        for number, weights in enumerate(pool.map(lambda s: explain(catalogue, s), sessions)):
            print(number, weights.sum().item())


main()
