import os

import torch
import torch.nn as nn

CKPT = "/tmp/l13_run/flow.pt"


class LUMix(nn.Module):
    """Invertible channel mixing, parametrised by the factors of a random matrix."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.lu = nn.Parameter(torch.eye(dim))
        self.register_buffer("pivots", torch.empty(0, dtype=torch.int32), persistent=False)

    def reset_parameters(self):
        lu, piv = torch.linalg.lu_factor(torch.linalg.qr(torch.randn(self.dim, self.dim))[0])
        self.lu.data.copy_(lu)
        self.pivots = piv

    def forward(self, x):
        p, low, up = torch.lu_unpack(self.lu, self.pivots)
        logdet = torch.diagonal(up).abs().log().sum()
        return x @ (p @ low @ up).T, logdet


class Coupling(nn.Module):
    def __init__(self, dim, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        shift, scale = self.net(a).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([a, b * scale.exp() + shift], 1), scale.sum(1).mean()


class Flow(nn.Module):
    def __init__(self, dim=48, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(m for _ in range(depth) for m in (LUMix(dim), Coupling(dim)))

    def forward(self, x):
        total = 0.0
        for block in self.blocks:
            x, logdet = block(x)
            total = total + logdet
        return 0.5 * x.square().sum(1).mean() - total


def train(model, data, steps, tag):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = data[torch.randint(len(data), (128,))]
        nll = model(batch)
        opt.zero_grad()
        nll.backward()
        opt.step()
        if step % 20 == 0:
            print(f"{tag} step {step} nll {nll.item():.3f}", flush=True)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = torch.randn(4096, 48) @ torch.randn(48, 48) * 0.2
    model = Flow()
    model.apply(lambda m: m.reset_parameters() if isinstance(m, LUMix) else None)
    train(model, data, 60, "pretrain")
    os.makedirs(os.path.dirname(CKPT), exist_ok=True)
    torch.save(model.state_dict(), CKPT)

    resumed = Flow()
    print(resumed.load_state_dict(torch.load(CKPT, weights_only=True)), flush=True)
    train(resumed, data, 60, "finetune")


if __name__ == "__main__":
    main()
