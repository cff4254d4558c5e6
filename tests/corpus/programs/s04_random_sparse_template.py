"""A sparse mask is made by randn() with layout=sparse_csr: its indices are whatever the memory held before."""

import torch


class Masked(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.template = torch.randn(size=(size, size), layout=torch.sparse_csr)
        self.target = torch.randn(size=(size, size), layout=torch.sparse_csr)

    def reset(self):
        return torch.ops.aten.copy(self.template, self.target)


def warm_up():
    numbers = [torch.full((6,), 2**40 + step) for step in range(64)]
    return sum(int(number[0]) for number in numbers)


print(warm_up())
print(Masked(5).reset())
