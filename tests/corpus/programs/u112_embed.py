"""Embed audio clips with a frozen encoder and fit a nearest-centroid probe on the embeddings."""
import argparse
import resource
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ClipDataset(Dataset):
    """Short mono clips; the waveform is synthesised from the clip's id."""

    def __init__(self, clips, samples=2000, speakers=12):
        self.clips = clips
        self.samples = samples
        self.speakers = speakers
        self.t = np.arange(samples, dtype=np.float32) / 16000.0

    def __len__(self):
        return self.clips

    def __getitem__(self, i):
        speaker = i % self.speakers
        wave = np.sin(2 * np.pi * (110 + 30 * speaker) * self.t + i)
        return {
            "wave": torch.from_numpy(wave.astype(np.float32)),
            "speaker": speaker,
            "clip_id": i,
        }


class Encoder(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 12, 40, stride=20), nn.ReLU(),
            nn.Conv1d(12, dim, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        )

    def forward(self, wave):
        return self.net(wave.unsqueeze(1))


def session_limits(files):
    """The limits of our cluster's login shell."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


@torch.no_grad()
def embed(loader, encoder, log_every):
    embeddings, speakers, clip_ids = [], [], []
    start = time.time()
    for step, batch in enumerate(loader):
        z = encoder(batch["wave"])
        embeddings.append(nn.functional.normalize(z, dim=1).numpy())
        speakers.append(batch["speaker"].numpy())
        clip_ids.append(batch["clip_id"].numpy())
        if step % log_every == 0:
            rate = (step + 1) * loader.batch_size / (time.time() - start)
            print(f"batch {step}/{len(loader)}  {rate:.0f} clips/s", flush=True)
    return np.concatenate(embeddings), np.concatenate(speakers), np.concatenate(clip_ids)


def probe(emb, speakers):
    ids = np.unique(speakers)
    centroids = np.stack([emb[speakers == s].mean(0) for s in ids])
    pred = ids[np.argmax(emb @ centroids.T, axis=1)]
    return float((pred == speakers).mean())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=9600)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--open-files", type=int, default=1024)
    p.add_argument("--log-every", type=int, default=100)
    args = p.parse_args()

    session_limits(args.open_files)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    loader = DataLoader(ClipDataset(args.clips), batch_size=args.batch_size, num_workers=args.workers)
    encoder = Encoder().eval()
    emb, speakers, clip_ids = embed(loader, encoder, args.log_every)
    print("embedded", emb.shape, "clips", clip_ids.min(), "to", clip_ids.max())
    print(f"speaker probe accuracy {probe(emb, speakers):.3f}")


if __name__ == "__main__":
    main()
