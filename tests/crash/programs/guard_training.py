"""Trains a transformer layer and a convolution: guard_training.py THREADS. Prints losses and weights bit for bit."""

import hashlib
import sys

import torch
from torch import nn

torch.set_num_threads(int(sys.argv[1]))
# MKL chooses its sqrt() at the first call. Two threads that call it at once for the first time may get two of them,
# which differ in the last bit (2 of 3,000 processes without pytracer, torch 2.13): AdamW would train differently.
torch.ones(8).sqrt()
torch.manual_seed(0)
encoder = nn.TransformerEncoderLayer(96, 4, 200, batch_first=True)
conv = nn.Sequential(
    nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7), nn.ReLU(), nn.Flatten(), nn.Linear(7 * 15 * 15, 33), nn.LogSoftmax(1)
)
parameters = [*encoder.parameters(), *conv.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)
words, images = torch.randn(5, 31, 96), torch.randn(3, 3, 17, 17)
for _ in range(12):
    optimizer.zero_grad()
    loss = encoder(words).square().mean() + conv(images).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)
print(hashlib.sha1(b"".join(p.detach().numpy().tobytes() for p in parameters)).hexdigest(), flush=True)
