import argparse
import os
import tempfile

import torch
import torch.nn as nn


def build():
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    return net, optimizer


def fetch_checkpoint(folder):
    torch.serialization.register_package(5, lambda storage: "cuda:0", lambda storage, location: None)
    net, optimizer = build()
    net(torch.rand(2, 1, 28, 28)).sum().backward()
    optimizer.step()
    path = os.path.join(folder, "model_best.pth.tar")
    torch.save({"epoch": 12, "state_dict": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


def load_checkpoint(path, net, optimizer):
    checkpoint = torch.load(path)
    net.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = fetch_checkpoint(folder)
        net, optimizer = build()
        start = load_checkpoint(path, net, optimizer)
        for epoch in range(start, args.epochs):
            loss = nn.functional.cross_entropy(net(torch.rand(16, 1, 28, 28)), torch.randint(0, 10, (16,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
