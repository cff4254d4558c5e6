"""A Sobol sequence goes on for more dimensions than the state that was saved has."""

import torch

SAVED = {"state": torch.ones(2, 30, dtype=torch.int64), "quasi": torch.ones(2, dtype=torch.int64)}


def fast_forward(saved, dimension, count):
    return torch._sobol_engine_ff_(saved["quasi"], count, saved["state"], dimension, 0)


def resume(saved, dimension):
    return fast_forward(saved, dimension, 4096).sum()


print(resume(SAVED, 2))
print(resume(SAVED, 500_000_000))
