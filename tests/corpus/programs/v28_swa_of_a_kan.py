import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel


class KANLayer(nn.Module):
    def __init__(self, in_dim, out_dim, num=6):
        super().__init__()
        self.coef = nn.Parameter(torch.randn(in_dim, out_dim, num) * 0.1)
        self.scale_base = nn.Parameter(torch.ones(in_dim, out_dim))
        self.register_buffer("grid", torch.linspace(-1, 1, num))

    def forward(self, x):
        basis = torch.exp(-((x[..., None] - self.grid) * 3) ** 2)
        spline = torch.einsum("bik,iok->bio", basis, self.coef)
        postacts = self.scale_base * torch.nn.functional.silu(x)[..., None] + spline
        return postacts.sum(dim=1), postacts, spline


class MultKAN(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.act_fun = nn.ModuleList(KANLayer(a, b) for a, b in zip(width, width[1:]))
        self.acts = []
        self.edge_actscale = []

    def forward(self, x):
        self.acts = [x.detach()]
        self.edge_actscale = []
        for layer in self.act_fun:
            x, postacts, spline = layer(x)
            self.edge_actscale.append(postacts.std(dim=0))
            self.acts.append(x.detach())
        return x

    def reg(self, lamb):
        return lamb * sum(scale.sum() for scale in self.edge_actscale)


def fit(model, steps, swa_start):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    swa_model, swa_scheduler = None, SWALR(optimizer, swa_lr=5e-3)
    for step in range(steps):
        x = torch.rand(64, 2) * 2 - 1
        y = torch.exp(torch.sin(3 * x[:, :1]) + x[:, 1:] ** 2)
        loss = nn.functional.mse_loss(model(x), y) + model.reg(1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == swa_start:
            swa_model = AveragedModel(model)
        elif step > swa_start:
            swa_model.update_parameters(model)
            swa_scheduler.step()
    return swa_model


torch.manual_seed(0)
fit(MultKAN([2, 5, 1]), steps=40, swa_start=20)
print("done")
