import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--freeze", type=int, default=2)
parser.add_argument("--lr", type=float, default=1e-3)
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self, layers=4, dim=32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.head = nn.Linear(dim, 5)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x)


def freeze(model, count):
    for layer in model.layers[:count]:
        layer.requires_grad_(False)


def trainable(model):
    return filter(lambda p: p.requires_grad, model.parameters())


def describe(model, params):
    n = sum(p.numel() for p in params)
    total = sum(p.numel() for p in model.parameters())
    print(f"{n} of {total} parameters are trained ({100 * n / total:.1f}%)", flush=True)


def main():
    torch.manual_seed(0)
    model = Net()
    freeze(model, args.freeze)
    params = trainable(model)
    describe(model, params)
    opt = torch.optim.AdamW(params, lr=args.lr, weight_decay=0.01)
    for step in range(50):
        x = torch.randn(32, 32)
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", loss.item())


main()
