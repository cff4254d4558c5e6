"""Train a bigram language model from binary token shards read by a native prefetcher."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

HERE = os.path.dirname(os.path.abspath(__file__))


def build_prefetcher():
    library = os.path.join(tempfile.mkdtemp(prefix="prefetch_"), "libprefetch.so")
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-pthread",
                    os.path.join(HERE, "n106_prefetch.cpp"), "-o", library], check=True)
    lib = ctypes.CDLL(library)
    lib.prefetch_open.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
    lib.prefetch_open.restype = ctypes.c_int
    lib.prefetch_next.argtypes = [ctypes.c_void_p]
    lib.prefetch_next.restype = ctypes.c_int64
    lib.prefetch_close.argtypes = []
    lib.prefetch_close.restype = None
    return lib


class ShardReader:
    def __init__(self, lib, path, batch_tokens, depth=4):
        self.lib = lib
        self.batch_tokens = batch_tokens
        if lib.prefetch_open(path.encode(), batch_tokens, depth) != 0:
            raise OSError(f"cannot open {path}")

    def next_batch(self):
        batch = torch.empty(self.batch_tokens, dtype=torch.int32)
        count = self.lib.prefetch_next(batch.data_ptr())
        return batch[:count].long()

    def close(self):
        self.lib.prefetch_close()


class Bigram(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.table = nn.Embedding(vocab, vocab)
        nn.init.zeros_(self.table.weight)

    def forward(self, tokens):
        return nn.functional.cross_entropy(self.table(tokens[:-1]), tokens[1:])


def write_shard(path, vocab, tokens, seed=0):
    rng = np.random.default_rng(seed)
    steps = rng.choice([1, 2, 3], size=tokens, p=[0.9, 0.06, 0.04])
    stream = np.cumsum(steps) % vocab
    stream.astype(np.int32).tofile(path)


def train(model, reader, steps, target_loss):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    smoothed = None
    for step in range(steps):
        loss = model(reader.next_batch())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        smoothed = value if smoothed is None else 0.9 * smoothed + 0.1 * value
        if step % 50 == 0:
            print(f"step {step} loss {smoothed:.3f}", flush=True)
        if smoothed < target_loss:
            print(f"step {step} loss {smoothed:.3f}, target reached", flush=True)
            return smoothed
    reader.close()
    return smoothed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--target-loss", type=float, default=0.6)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    lib = build_prefetcher()
    with tempfile.TemporaryDirectory(prefix="shards_") as folder:
        shard = os.path.join(folder, "train_000.bin")
        write_shard(shard, args.vocab, args.tokens)
        model = Bigram(args.vocab)
        reader = ShardReader(lib, shard, args.batch_tokens)
        loss = train(model, reader, args.steps, args.target_loss)
        checkpoint = os.path.join(folder, "bigram.pt")
        torch.save({"model": model.state_dict(), "loss": loss}, checkpoint)
        print(f"saved {os.path.getsize(checkpoint)} bytes, final loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
