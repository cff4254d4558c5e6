# pyg-team/pytorch_geometric#120, rusty1s/pytorch_scatter#65: segmentation fault of scatter on the CPU
import os

import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
ops = load("secondops", [os.path.join(here, "secondops.cpp")], extra_cflags=["-O1", "-g"])


def pool(values, groups):
    return ops.scatter_add(values, groups, 64)


values = torch.randn(20_000, 8)
groups = torch.randint(0, 64, (20_000,))
print(pool(values, groups).sum())
groups[12_345] = -6_148_914_691_236_517_206  # torch.empty() that was filled up to here
print(pool(values, groups).sum())
