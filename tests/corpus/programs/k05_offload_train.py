"""Keep only one block's weights resident at a time while training a deep MLP."""
import torch
import torch.nn as nn


class BlockOffloader:
    """Parks a block's parameters in a host copy between its uses."""

    def __init__(self, blocks):
        self.parked = {}
        for block in blocks:
            block.register_forward_pre_hook(self.load)
            block.register_forward_hook(self.park)

    def load(self, block, args):
        for p in block.parameters():
            saved = self.parked.pop(p, None)
            if saved is not None:
                p.data.untyped_storage().resize_(saved.untyped_storage().nbytes())
                p.data.copy_(saved)

    def park(self, block, args, output):
        for p in block.parameters():
            self.parked[p] = p.data.clone()
            p.data.untyped_storage().resize_(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return nn.functional.gelu(self.linear(x)) * self.gamma


class DeepMLP(nn.Module):
    def __init__(self, width=256, depth=6, classes=10):
        super().__init__()
        self.stem = nn.Linear(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def evaluate(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    model = DeepMLP()
    BlockOffloader(model.blocks)
    x, y = torch.randn(128, 64), torch.randint(0, 10, (128,))
    print(f"accuracy before training {evaluate(model, x, y):.3f}", flush=True)
    opt = torch.optim.SGD([*model.stem.parameters(), *model.head.parameters()], lr=0.1)
    for step in range(20):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
