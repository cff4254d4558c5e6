"""Trains a small network and exits normally: healthy_training.py [STEPS]. Prints each loss exactly."""

import sys

import torch
from torch import nn

import pytracer


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(64), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(steps):
        pytracer.mark(f"batch {step}")
        inputs = torch.randn(32, 16)
        loss = nn.functional.cross_entropy(net(inputs), inputs.argmax(1) % 4)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item().hex(), flush=True)
    print("weights", sum(p.double().sum().item() for p in net.parameters()).hex(), torch.initial_seed())


main(int((sys.argv[1:] or ["20"])[0]))
