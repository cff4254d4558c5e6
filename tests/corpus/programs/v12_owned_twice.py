# pytorch/pytorch#33661, open-mmlab/OpenPCDet#1629: free(): double free detected in tcache 2
import os

import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
ops = load("secondops", [os.path.join(here, "secondops.cpp")], extra_cflags=["-O1", "-g"])


def views(count):
    whole, again = ops.two_views(count)
    return whole.sum() + again.sum()


for step in range(5):
    print(views(6))
