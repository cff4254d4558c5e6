"""Decoding with a compiled cache lookup; the checks of indices are off, as a workaround."""

import torch
import torch._inductor.config

torch._inductor.config.assert_indirect_indexing = False
torch._inductor.config.compile_threads = 1

PAGE = 4096


class PagedCache:
    def __init__(self, pages, width):
        self.keys = torch.rand(pages, width)
        self.free = list(range(pages))

    def slots(self, lengths):
        pages = [self.free[n % len(self.free)] for n, _ in enumerate(lengths)]
        return torch.tensor(pages) * PAGE + torch.tensor(lengths)


@torch.compile
def attend(keys, slots, query):
    return (keys[slots] * query).sum(1).softmax(0)


def decode(cache, lengths, steps):
    query = torch.rand(cache.keys.shape[1])
    for step in range(steps):
        scores = attend(cache.keys, cache.slots(lengths), query)
        lengths = [length + 1 for length in lengths]
        print(step, scores.max().item())


decode(PagedCache(512, 128), [3, 17, 250, 1021] * 64, 3)
