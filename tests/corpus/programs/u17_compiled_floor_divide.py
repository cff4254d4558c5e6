# pytorch/pytorch#143649
import torch


@torch.compile
def bucket(positions, width):
    return positions // width


print(bucket(torch.arange(64), torch.tensor([8])))
print(bucket(torch.arange(64), torch.tensor([0])))
