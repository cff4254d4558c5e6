"""An extension pools in three ways; one of them was finished, but for its return."""

import os

import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
ninthops = load("ninthops", [os.path.join(here, "ninthops.cpp")], extra_cflags=["-O1", "-g"])


def embed(hidden, mask, mode):
    return ninthops.pooled(hidden, mask, mode)


def compare(hidden, mask):
    for mode in ("first", "mean", "max"):
        print(mode, embed(hidden, mask, mode).norm())


compare(torch.randn(4, 16, 32), torch.ones(4, 16))
