# pytorch/pytorch#142838
import torch


def unpool(grad, volume, indices):
    return torch.ops.aten.fractional_max_pool3d_backward(grad, volume, [2, 2, 2], [2, 2, 2], indices)


volume = torch.full((2, 3, 2, 2, 2), 0.5, dtype=torch.double)
found = torch.zeros((2, 3, 2, 2, 2), dtype=torch.long)
print(unpool(volume, volume, found).sum())
print(unpool(volume, volume, torch.empty(0, 0, 11, 0, dtype=torch.long)).sum())
