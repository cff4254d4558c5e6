"""Fit a small Glow-style flow, store a compact checkpoint and sample from it."""
import os
import tempfile
import torch
import torch.nn as nn


class Invertible1x1(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        self.register_buffer("lu", torch.eye(channels))
        self.register_buffer("perm", torch.empty(0, dtype=torch.int32))

    def init_random(self):
        q, _ = torch.linalg.qr(torch.randn(self.channels, self.channels))
        lu, perm = torch.linalg.lu_factor(q)
        self.lu, self.perm = lu, perm
        return self

    def weight(self):
        p, l, u = torch.lu_unpack(self.lu, self.perm)
        return p @ l @ u

    def forward(self, x):
        logdet = self.lu.diagonal().abs().log().sum()
        return x @ self.weight().T, logdet

    def reverse(self, z):
        return torch.linalg.solve(self.weight(), z.T).T


class Affine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return x * self.log_scale.exp() + self.shift, self.log_scale.sum()

    def reverse(self, z):
        return (z - self.shift) * (-self.log_scale).exp()


class Flow(nn.Module):
    def __init__(self, channels=24, depth=3, fresh=True):
        super().__init__()
        steps = []
        for _ in range(depth):
            mix = Invertible1x1(channels)
            steps += [mix.init_random() if fresh else mix, Affine(channels)]
        self.steps = nn.ModuleList(steps)

    def log_prob(self, x):
        total = 0.0
        for step in self.steps:
            x, logdet = step(x)
            total = total + logdet
        return -0.5 * (x ** 2).sum(1) + total

    def sample(self, n):
        z = torch.randn(n, self.steps[0].channels)
        for step in reversed(self.steps):
            z = step.reverse(z)
        return z


def compact_state(model):
    return {k: v.half() for k, v in model.state_dict().items() if v.is_floating_point()}


def load_compact(model, state):
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, value in state.items():
        own[name].data = value.to(own[name].dtype)
    return model


def main():
    torch.manual_seed(0)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=1e-2)
    for step in range(60):
        loss = -flow.log_prob(torch.randn(256, 24) * 2 + 1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"nll {loss.item():.3f}", flush=True)
    path = os.path.join(tempfile.mkdtemp(), "flow_fp16.pt")
    torch.save(compact_state(flow), path)

    restored = load_compact(Flow(fresh=False), torch.load(path)).eval()
    with torch.no_grad():
        print("samples", restored.sample(8).mean().item(), flush=True)


if __name__ == "__main__":
    main()
