# pytorch_geometric-style message passing; pytorch/extension-cpp#20 (segmentation fault in a C++ extension)
import torch
import os
from torch.utils.cpp_extension import load
here = os.path.dirname(os.path.abspath(__file__))
userops = load("userops", [os.path.join(here, "userops.cpp")], extra_cflags=["-O1", "-g", "-fopenmp"], extra_ldflags=["-fopenmp"])


def conv(x, edges):
    return torch.relu(userops.propagate(x, edges))


x = torch.randn(100, 16)
edges = torch.randint(0, 100, (2, 400))
print(conv(x, edges).sum())
edges[1, 37] = 76561198000000000  # a user id that was not mapped to a node
print(conv(x, edges).sum())
