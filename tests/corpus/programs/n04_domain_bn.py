"""Image classifier with per-domain normalisation; validation runs in the background."""
from concurrent.futures import ThreadPoolExecutor
import torch
import torch.nn as nn
import torch.nn.functional as F


class DomainNorm(nn.Module):
    def __init__(self, channels, momentum=0.1, eps=1e-5, track=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.momentum, self.eps = momentum, eps
        self.register_buffer("running_mean", torch.zeros(channels) if track else None)
        self.register_buffer("running_var", torch.ones(channels) if track else None)

    def forward(self, x):
        out, mean, rstd = torch.native_batch_norm(
            x, self.weight, self.bias, self.running_mean, self.running_var,
            self.training, self.momentum, self.eps)
        return out


class Block(nn.Module):
    def __init__(self, cin, cout, track):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm = DomainNorm(cout, track=track)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = Block(3, 8, track=True)
        self.body = Block(8, 16, track=False)
        self.head = nn.Linear(16 * 4 * 4, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).flatten(1))


def batches(n, size=32):
    gen = torch.Generator().manual_seed(n)
    for _ in range(n):
        yield torch.randn(size, 3, 16, 16, generator=gen), torch.randint(0, 5, (size,), generator=gen)


@torch.no_grad()
def validate(model, n=4):
    model.eval()
    hits = total = 0
    for x, y in batches(n):
        hits += (model(x).argmax(1) == y).sum().item()
        total += y.numel()
    model.train()
    return hits / total


def main():
    torch.manual_seed(1)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="valid") as pool:
        for epoch in range(3):
            for x, y in batches(10):
                loss = F.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
            acc = pool.submit(validate, model).result()
            print(f"epoch {epoch} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
