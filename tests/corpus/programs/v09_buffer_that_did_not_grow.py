"""A loader that decodes into one buffer, which it enlarges for longer recordings."""

import numpy as np
import torch
from torch import nn


class Workspace:
    def __init__(self, batch, length):
        self.frames = torch.from_numpy(np.zeros((batch, length), dtype=np.float32))

    def reserve(self, batch, length):
        if self.frames.numel() < batch * length:
            try:
                self.frames.resize_(batch, length)
            except RuntimeError as error:
                print("resize:", str(error).splitlines()[0])
        return self.frames


def decode(workspace, recordings):
    longest = max(len(recording) for recording in recordings)
    frames = workspace.reserve(len(recordings), longest)
    frames.zero_()
    for row, recording in zip(frames, recordings):
        row[: len(recording)] = recording
    return frames[: len(recordings)]


def train(lengths):
    workspace = Workspace(16, 4000)
    model = nn.Conv1d(1, 4, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for length in lengths:
        batch = decode(workspace, [torch.rand(length) for _ in range(16)])
        loss = model(batch[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(length, loss.item())


train([4000, 3000, 400_000])
