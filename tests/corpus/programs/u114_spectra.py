"""Prepare spectrogram shards for a keyword spotter: one preview shard, then all shards in child processes."""
import argparse
import os
import time
from multiprocessing import get_context

import numpy as np
import torch


class LogMel:
    def __init__(self, n_fft=512, hop=160, mels=40):
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)
        edges = np.linspace(0, n_fft // 2, mels + 2)
        bins = np.arange(n_fft // 2 + 1)
        bank = np.maximum(0, 1 - np.abs(bins[None] - edges[1:-1, None]) / (edges[1] - edges[0]))
        self.bank = torch.from_numpy(bank.astype(np.float32))

    def __call__(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(self.bank @ spec.abs().pow(2) + 1e-6)


class ShardWriter:
    def __init__(self, out_dir, clips, samples):
        self.out_dir = out_dir
        self.clips = clips
        self.samples = samples
        self.mel = LogMel()
        os.makedirs(out_dir, exist_ok=True)

    def read_clips(self, shard):
        rng = np.random.default_rng(shard)
        pcm = rng.normal(scale=3000, size=(self.clips, self.samples)).astype(np.int16)
        return torch.from_numpy(pcm)

    def normalise(self, pcm):
        wave = pcm.float() / 32768.0
        return wave / wave.abs().amax(dim=1, keepdim=True)

    def write(self, shard):
        pcm = self.read_clips(shard)
        print(f"[{os.getpid()}] shard {shard}: {pcm.shape[0]} clips", flush=True)
        wave = self.normalise(pcm)
        feats = self.mel(wave)
        path = os.path.join(self.out_dir, f"shard_{shard:03d}.npy")
        np.save(path, feats.half().numpy())
        print(f"[{os.getpid()}] shard {shard}: wrote {tuple(feats.shape)}", flush=True)
        return feats


def statistics(feats):
    mean = feats.mean(dim=(0, 2))
    std = feats.std(dim=(0, 2))
    return mean, std


def write_shards(writer, shards):
    for shard in shards:
        writer.write(shard)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out-dir", default="kws_shards")
    p.add_argument("--shards", type=int, default=6)
    p.add_argument("--clips", type=int, default=24)
    p.add_argument("--samples", type=int, default=16000)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()

    torch.set_num_threads(args.threads)
    writer = ShardWriter(args.out_dir, args.clips, args.samples)

    t0 = time.time()
    mean, std = statistics(writer.write(0))
    np.savez(os.path.join(args.out_dir, "stats.npz"), mean=mean.numpy(), std=std.numpy())
    print(f"statistics from shard 0: mean {mean.mean():.3f} std {std.mean():.3f} ({time.time() - t0:.1f}s)", flush=True)

    ctx = get_context("fork")
    todo = list(range(1, args.shards))
    procs = []
    for j in range(args.jobs):
        proc = ctx.Process(target=write_shards, args=(writer, todo[j::args.jobs]), name=f"shards-{j}")
        proc.start()
        procs.append(proc)
    for proc in procs:
        proc.join()
    done = sorted(f for f in os.listdir(args.out_dir) if f.startswith("shard_"))
    print(f"{len(done)} shards in {args.out_dir} after {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
