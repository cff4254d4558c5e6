# pytorch/pytorch#128695
import torch


def reparametrize(v, g):
    w, norms = torch._weight_norm_interface(v, g, 0)
    return w


v = torch.full((16, 3, 3), 1.0)
g = torch.full((2, 1, 1), 1.0)  # of the smaller layer
for _ in range(200):
    w = reparametrize(v, g)
print(w.shape)
