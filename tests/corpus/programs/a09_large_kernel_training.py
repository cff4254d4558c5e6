import argparse
import math

import torch
import torch.nn as nn
from torch._six import inf


def get_grad_norm_(parameters, norm_type: float = 2.0):
    parameters = [p for p in parameters if p.grad is not None]
    if len(parameters) == 0:
        return torch.tensor(0.)
    if norm_type == inf:
        return max(p.grad.detach().abs().max() for p in parameters)
    return torch.norm(torch.stack([torch.norm(p.grad.detach(), norm_type) for p in parameters]), norm_type)


def cosine_scheduler(base_value, final_value, steps):
    return [final_value + 0.5 * (base_value - final_value) * (1 + math.cos(math.pi * i / steps)) for i in range(steps)]


class Block(nn.Module):
    def __init__(self, dim, kernel=13):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.norm = nn.GroupNorm(1, dim)
        self.pwconv1 = nn.Conv2d(dim, 4 * dim, 1)
        self.pwconv2 = nn.Conv2d(4 * dim, dim, 1)

    def forward(self, x):
        return x + self.pwconv2(nn.functional.gelu(self.pwconv1(self.norm(self.dwconv(x)))))


def main(args):
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Conv2d(3, 24, 4, 4), Block(24), Block(24),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = cosine_scheduler(args.lr, 1e-6, args.steps)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule[step]
        images, targets = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        grad_norm = get_grad_norm_(model.parameters())
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} grad_norm {grad_norm:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser("SLaK training", add_help=False)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
