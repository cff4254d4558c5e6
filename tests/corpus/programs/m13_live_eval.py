import os
import tempfile
import threading

import torch
from torch import nn


class TinyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.out = nn.Linear(256, 10)

    def forward(self, x):
        return self.out(self.body(x))


class LiveEvaluator(threading.Thread):
    def __init__(self, model, data):
        super().__init__(daemon=True, name="live-eval")
        self.model, self.data = model, data
        self.history = []

    def run(self):
        while True:
            with torch.no_grad():
                out = self.model(self.data)
                self.history.append(out.softmax(-1).max(-1).values.mean().item())


def train(model, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyNet()
    monitor = LiveEvaluator(model, torch.randn(512, 256))
    monitor.start()
    loss = train(model, 200)
    torch.save(model.state_dict(), os.path.join(tempfile.mkdtemp(), "tinynet.pt"))
    print(f"finished, loss {loss:.3f}, {len(monitor.history)} live evaluations", flush=True)


if __name__ == "__main__":
    main()
