"""Sleep stage classifier on EEG windows; the recording lies in shared memory once for all loader workers."""
import argparse
from multiprocessing import shared_memory

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class SharedRecording:
    """Description of an array that lies in a named shared memory block."""

    def __init__(self, array):
        self.shape = array.shape
        self.dtype = array.dtype.str
        self.block = shared_memory.SharedMemory(create=True, size=array.nbytes)
        self.name = self.block.name
        view = np.ndarray(self.shape, dtype=self.dtype, buffer=self.block.buf)
        view[:] = array

    def release(self):
        self.block.close()
        self.block.unlink()


def attach_recording(name, shape, dtype):
    block = shared_memory.SharedMemory(name=name)
    return np.ndarray(shape, dtype=dtype, buffer=block.buf)


class WindowDataset(Dataset):
    def __init__(self, recording, labels, window):
        self.name = recording.name
        self.shape = recording.shape
        self.dtype = recording.dtype
        self.labels = labels
        self.window = window
        self.signal = None

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        if self.signal is None:
            self.signal = attach_recording(self.name, self.shape, self.dtype)
        start = index * self.window
        segment = self.signal[:, start:start + self.window]
        segment = (segment - segment.mean(axis=1, keepdims=True)) / 50.0
        return torch.from_numpy(segment.astype(np.float32)), int(self.labels[index])


class StageNet(nn.Module):
    def __init__(self, channels, stages):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(channels, 16, 25, stride=6), nn.ReLU(),
            nn.Conv1d(16, 32, 11, stride=4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(8), nn.Flatten())
        self.classifier = nn.Linear(32 * 8, stages)

    def forward(self, x):
        return self.classifier(self.encoder(x))


def simulate_recording(channels, windows, window, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, size=windows)
    time = np.arange(window) / 100.0
    signal = rng.normal(0, 20, size=(channels, windows * window)).astype(np.float32)
    for i, label in enumerate(labels):
        signal[:, i * window:(i + 1) * window] += 30 * np.sin(2 * np.pi * (2 + 3 * label) * time)
    return signal, labels


def run_epoch(model, loader, optimizer, title):
    total, correct = 0, 0
    for x, y in loader:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += len(y)
        correct += (logits.argmax(dim=1) == y).sum().item()
    print(f"{title}: loss {loss.item():.4f} accuracy {correct / total:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--windows", type=int, default=800)
    parser.add_argument("--window", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = StageNet(args.channels, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    calib, calib_labels = simulate_recording(args.channels, 64, args.window, seed=1)
    calib = calib.reshape(args.channels, 64, args.window).swapaxes(0, 1) / 50.0
    calib_set = TensorDataset(torch.from_numpy(np.ascontiguousarray(calib)), torch.from_numpy(calib_labels))
    for epoch in range(3):
        run_epoch(model, DataLoader(calib_set, batch_size=16, shuffle=True), optimizer, f"calibration {epoch}")

    signal, labels = simulate_recording(args.channels, args.windows, args.window, seed=2)
    recording = SharedRecording(signal)
    try:
        dataset = WindowDataset(recording, labels, args.window)
        loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=args.workers)
        for epoch in range(args.epochs):
            run_epoch(model, loader, optimizer, f"night {epoch}")
    finally:
        recording.release()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
