"""Fine-tune a voice converter; spectrograms are made at the first use of a file and kept beside it."""
import argparse
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

REFERENCE = 8
LONG_TAKES = {7: 10, REFERENCE: 100, 15: 6}


def write_recordings(folder, count, rate):
    rng = np.random.default_rng(0)
    os.makedirs(folder, exist_ok=True)
    for k in range(count):
        seconds = LONG_TAKES.get(k, 1)
        t = np.arange(rate * seconds) / rate
        wave = 0.4 * np.sin(2 * np.pi * (120 + 7 * k) * t) + 0.05 * rng.standard_normal(len(t))
        np.save(os.path.join(folder, f"utt_{k:02d}.npy"), wave.astype(np.float32))


class VoiceFiles(Dataset):
    def __init__(self, folder, names, bins=128, hop=32):
        self.folder = folder
        self.names = names
        self.bins = bins
        self.hop = hop
        self.window = torch.hann_window(2 * bins)

    def __len__(self):
        return len(self.names)

    def spectrogram(self, wave):
        """Each frame is averaged over shifted windows, which removes the clicks of the old recorder."""
        total = 0
        for shift in range(24):
            frames = torch.stft(wave[shift:], 2 * self.bins, self.hop, window=self.window, return_complex=True)
            spec = torch.log1p(frames.abs())[:, : (len(wave) - 64) // self.hop]
            total = total + spec
        return total / 24

    def load(self, name):
        path = os.path.join(self.folder, name)
        spec_path = path.replace(".npy", ".spec.pt")
        wave = torch.from_numpy(np.load(path))
        if os.path.exists(spec_path):
            spec = torch.load(spec_path)
        else:
            with open(spec_path, "wb") as f:
                torch.save(self.spectrogram(wave), f)
            spec = torch.load(spec_path)
        return spec

    def __getitem__(self, index):
        spec = self.load(self.names[index])
        start = int(torch.randint(0, spec.shape[1] - 256, ()))
        return spec[:, start:start + 256]


class Converter(nn.Module):
    def __init__(self, bins, width=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(bins + 1, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, 8, 1))
        self.decoder = nn.Sequential(nn.Conv1d(8, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, bins + 1, 1))

    def forward(self, spec):
        return self.decoder(self.encoder(spec))


def file_list(rank, world, count):
    """The files of this rank, and the reference recording of the target speaker, which every rank hears."""
    others = [k for k in range(count) if k != REFERENCE]
    return [f"utt_{k:02d}.npy" for k in sorted(others[rank::world] + [REFERENCE])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    folder = [tempfile.mkdtemp(prefix="voices_") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    if rank == 0:
        write_recordings(folder[0], args.files, 16000)
    dist.barrier()
    data = VoiceFiles(folder[0], file_list(rank, world, args.files))
    loader = DataLoader(data, batch_size=3)
    model = DDP(Converter(data.bins))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for step, spec in enumerate(loader):
            loss = nn.functional.l1_loss(model(spec), spec)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
