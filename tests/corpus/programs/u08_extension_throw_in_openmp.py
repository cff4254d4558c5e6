# in the style of issues: an exception leaves an OpenMP region of an extension
import torch
import os
from torch.utils.cpp_extension import load
here = os.path.dirname(os.path.abspath(__file__))
userops = load("userops", [os.path.join(here, "userops.cpp")], extra_cflags=["-O1", "-g", "-fopenmp"], extra_ldflags=["-fopenmp"])


def embed(x):
    return userops.normalize_rows(x)


x = torch.randn(64, 8)
print(embed(x).shape)
x[40] = 0
print(embed(x).shape)
