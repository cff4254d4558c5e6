# ROCm/aiter#5255: an index tensor of another width than the kernel's
import os

import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
ops = load("secondops", [os.path.join(here, "secondops.cpp")], extra_cflags=["-O1", "-g"])


def gather(table, picks):
    return ops.gather_rows(table, picks)


table = torch.randn(1000, 4)
print(gather(table, torch.arange(500)).sum())
print(gather(table, torch.arange(1, 501, dtype=torch.int32)).sum())
