# pytorch/vision#4828: roi_align of boxes whose first column is no index of the batch
import os

import torch
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
ops = load("secondops", [os.path.join(here, "secondops.cpp")], extra_cflags=["-O1", "-g"])


def crop(features, boxes):
    return ops.roi_mean(features, boxes)


features = torch.randn(2, 16, 32, 32)
boxes = torch.tensor([[0, 1, 1, 9, 9], [1, 4, 4, 20, 20], [0, 2, 2, 5, 5]], dtype=torch.float)
print(crop(features, boxes).shape)
boxes[2, 0] = 3_000_000  # the number of the image in the whole set
print(crop(features, boxes).shape)
