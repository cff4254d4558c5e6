import os
import shutil
import tempfile

import torch
import torch.nn as nn


class StepDecoder(nn.Module):
    def __init__(self, feature_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.rnn = nn.LSTMCell(feature_size, hidden_size)
        self.out = nn.Linear(hidden_size, feature_size)

    def forward(self, frames, hidden, cell):
        num_steps, batch_size = frames.shape[0], frames.shape[1]
        output = torch.FloatTensor(num_steps, batch_size, self.hidden_size).fill_(0)
        for i in range(num_steps):
            hidden, cell = self.rnn(frames[i], (hidden, cell))
            output[i, :, :] = hidden
        return self.out(output)


def train(model, feature_size, hidden_size, batch_size=5, max_length=10):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        frames = torch.rand(max_length, batch_size, feature_size)
        state = torch.zeros(batch_size, hidden_size)
        loss = (model(frames, state, state) - frames).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}", flush=True)


def export(model, path, feature_size, hidden_size, batch_size=5, max_length=10):
    frames = torch.rand(max_length, batch_size, feature_size)
    state = torch.zeros(batch_size, hidden_size)
    traced = torch.jit.trace(model.eval(), (frames, state, state))
    traced.save(path)


def serve(path, feature_size, hidden_size, requests=(5, 3, 1)):
    decoder = torch.jit.load(path)
    with torch.no_grad():
        for batch_size in requests:
            frames = torch.rand(10, batch_size, feature_size)
            state = torch.zeros(batch_size, hidden_size)
            result = decoder(frames, state, state)
            print(f"served {batch_size}: {tuple(result.shape)}", flush=True)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        torch.manual_seed(0)
        model = StepDecoder(20, 10)
        train(model, 20, 10)
        export(model, os.path.join(folder, "decoder.pt"), 20, 10)
        serve(os.path.join(folder, "decoder.pt"), 20, 10)
    finally:
        shutil.rmtree(folder)
