"""Language model pretraining from a tokenized .bin/.idx corpus."""
import argparse
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {4: np.int32, 8: np.uint16}


def token_dtype(vocab_size):
    return np.uint16 if vocab_size < 65500 else np.int32


class CorpusWriter:
    def __init__(self, prefix, vocab_size):
        self.prefix, self.dtype = prefix, token_dtype(vocab_size)
        self.file = open(f"{prefix}.bin", "wb")
        self.sizes = []

    def add(self, tokens):
        self.file.write(np.asarray(tokens, dtype=self.dtype).tobytes())
        self.sizes.append(len(tokens))

    def finish(self):
        self.file.close()
        code = next(k for k, v in DTYPES.items() if v is self.dtype)
        with open(f"{self.prefix}.idx", "wb") as f:
            f.write(MAGIC + struct.pack("<QBQ", 1, code, len(self.sizes)))
            sizes = np.asarray(self.sizes, dtype=np.int32)
            pointers = np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64)]) * np.dtype(self.dtype).itemsize
            f.write(sizes.tobytes() + pointers.astype(np.int64).tobytes())


class IndexedCorpus:
    def __init__(self, prefix):
        with open(f"{prefix}.idx", "rb") as f:
            if f.read(len(MAGIC)) != MAGIC:
                raise ValueError(f"{prefix}.idx is not an index")
            _, code, count = struct.unpack("<QBQ", f.read(17))
            self.sizes = np.frombuffer(f.read(4 * count), dtype=np.int32)
            self.pointers = np.frombuffer(f.read(8 * count), dtype=np.int64)
        self.dtype = np.dtype(DTYPES[code])
        self.mmap = np.memmap(f"{prefix}.bin", mode="r")
        self.buffer = memoryview(self.mmap)

    def get(self, doc, offset=0, length=None):
        length = self.sizes[doc] - offset if length is None else length
        start = int(self.pointers[doc]) + offset * self.dtype.itemsize
        return np.frombuffer(self.buffer, dtype=self.dtype, count=length, offset=start)


class Windows(Dataset):
    """Random windows of ctx_len + 1 tokens over the whole corpus; one epoch is a fixed number of them."""

    def __init__(self, prefix, ctx_len, samples):
        self.corpus = IndexedCorpus(prefix)
        self.ctx_len, self.samples = ctx_len, samples
        self.data_size = len(self.corpus.buffer) // 2
        print(f"corpus {Path(prefix).name}: {self.data_size} tokens, {len(self.corpus.sizes)} documents", flush=True)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        need = self.ctx_len + 1
        start = np.random.randint(0, self.data_size - need)
        window = torch.from_numpy(self.corpus.get(0, offset=start, length=need).astype(np.int64))
        return window[:-1], window[1:]


class SmallLM(nn.Module):
    def __init__(self, vocab_size, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, target):
        hidden, _ = self.mix(self.embed(ids))
        flat = self.norm(hidden).flatten(0, 1)
        picked = torch.cat([target.flatten().unique(), torch.randint(self.embed.num_embeddings, (512,))]).unique()
        logits = flat @ self.embed.weight[picked].t()
        return F.cross_entropy(logits, torch.searchsorted(picked, target.flatten()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab-size", type=int, default=65536)
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--ctx-len", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="binidx-") as folder:
        prefix = str(Path(folder) / "world")
        writer, rng = CorpusWriter(prefix, args.vocab_size), np.random.default_rng(3)
        for _ in range(args.documents):
            writer.add(np.minimum(rng.zipf(1.3, size=rng.integers(60, 900)), args.vocab_size - 1))
        writer.finish()
        data = Windows(prefix, args.ctx_len, samples=320)
        loader = DataLoader(data, batch_size=args.batch_size, num_workers=1)
        model = SmallLM(args.vocab_size)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            start = time.time()
            for step, (ids, target) in enumerate(loader):
                loss = model(ids, target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - start:.1f}s", flush=True)
        print("finished", flush=True)


if __name__ == "__main__":
    main()
