import torch
import torch.nn as nn
import torch.nn.functional as F


def newton_schulz(g, steps=3):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x


@torch.compile(fullgraph=True)
def post_orthogonalize(params, updates, lr, weight_decay):
    torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_sub_(params, torch._foreach_mul(updates, lr))


class Dion(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    update = newton_schulz(p.grad)
                    post_orthogonalize([p], [update], group["lr"], group["weight_decay"])


def autoencoder(widths=(96, 80, 64, 48, 32, 8)):
    down = [nn.Linear(i, o, bias=False) for i, o in zip(widths, widths[1:])]
    up = [nn.Linear(o, i, bias=False) for i, o in zip(widths, widths[1:])][::-1]
    layers = []
    for layer in down + up:
        layers += [layer, nn.GELU()]
    return nn.Sequential(*layers[:-1])


def main():
    torch.manual_seed(0)
    model = autoencoder()
    optimizer = Dion(model.parameters())
    for step in range(20):
        x = torch.randn(64, 96)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
