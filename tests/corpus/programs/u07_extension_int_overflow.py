# ScatterNd-style int32 overflow: tensorflow/tensorflow#127164, in an extension of torch
import torch
import os
from torch.utils.cpp_extension import load
here = os.path.dirname(os.path.abspath(__file__))
userops = load("userops", [os.path.join(here, "userops.cpp")], extra_cflags=["-O1", "-g", "-fopenmp"], extra_ldflags=["-fopenmp"])


def probe(scan, where):
    return [userops.voxel(scan, *at) for at in where]


scan = torch.empty(1500, 1400, 1300, dtype=torch.int8)
print(probe(scan, [(0, 0, 0), (700, 700, 650)]))
print(probe(scan, [(1499, 1399, 1299)]))
