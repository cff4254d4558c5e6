import argparse
import os

import torch
from torch import nn


class KeywordNet(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 64, 9, stride=4), nn.ReLU(),
            nn.Conv1d(64, 128, 9, stride=4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(16), nn.Flatten(),
        )
        self.classifier = nn.Sequential(nn.Linear(128 * 16, 512), nn.ReLU(), nn.Linear(512, classes))

    def forward(self, wav):
        return self.classifier(self.features(wav))


def train_step(model, opt):
    x, y = torch.randn(8, 1, 4000), torch.randint(0, 12, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


class Exporter:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def export(self, model, step):
        path = os.path.join(self.folder, f"keyword_{step:04d}.pt")
        scripted = torch.jit.trace(model.eval(), torch.randn(1, 1, 4000))
        try:
            scripted.save(path)
        except Exception as e:
            print(f"export of step {step} failed, going on: {e}", flush=True)
        else:
            print(f"exported {path}", flush=True)
        model.train()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default="exports")
    p.add_argument("--steps", type=int, default=40)
    args = p.parse_args()
    torch.manual_seed(0)
    model = KeywordNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    exporter = Exporter(args.out)
    for step in range(args.steps):
        loss = train_step(model, opt)
        if step % 10 == 9:
            exporter.export(model, step)
    print(f"finished, loss {loss:.3f}")


if __name__ == "__main__":
    main()
