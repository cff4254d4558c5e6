# pytorch/pytorch#29498: malloc() finds its heap damaged, at random
import os

import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
ops = load("secondops", [os.path.join(here, "secondops.cpp")], extra_cflags=["-O1", "-g"])


def edges(x):
    return ops.prefix_sums(x)


torch.manual_seed(0)
total = torch.zeros(())
for step in range(2000):
    total += edges(torch.ones(64 + step % 5))[-1]
print(total)
