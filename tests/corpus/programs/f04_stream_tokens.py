"""Pre-train a small GPT-like model from token chunks on a remote store."""
import os
import shutil
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCAB = 512


def make_remote(root, num_chunks=6, tokens_per_chunk=1 << 17):
    rng = np.random.default_rng(0)
    for i in range(num_chunks):
        rng.integers(0, VOCAB, tokens_per_chunk, dtype=np.int64).tofile(f"{root}/chunk-{i}.bin")


class TokensLoader:
    def __init__(self, remote, cache, block_size, max_cached=1):
        self.remote, self.cache = remote, cache
        self.block_size = block_size
        self.max_cached = max_cached
        self._mmaps = {}
        self._buffers = {}

    def load_chunk(self, chunk_index):
        path = os.path.join(self.cache, f"chunk-{chunk_index}.bin")
        shutil.copy(os.path.join(self.remote, f"chunk-{chunk_index}.bin"), path)
        self._mmaps[chunk_index] = np.memmap(path, mode="r", order="C")
        self._buffers[chunk_index] = memoryview(self._mmaps[chunk_index])
        if len(self._mmaps) > self.max_cached:
            self.delete(next(iter(self._mmaps)))

    def load_item(self, chunk_index, pos):
        if chunk_index not in self._buffers:
            self.load_chunk(chunk_index)
        offset = pos * self.block_size * 8
        return torch.frombuffer(self._buffers[chunk_index], dtype=torch.int64,
                                count=self.block_size, offset=offset)

    def delete(self, chunk_index):
        del self._buffers[chunk_index]
        mmap = self._mmaps.pop(chunk_index)
        mmap._mmap.close()
        os.remove(os.path.join(self.cache, f"chunk-{chunk_index}.bin"))


class StreamingTokens(Dataset):
    def __init__(self, loader, num_chunks, blocks_per_chunk):
        self.loader = loader
        self.blocks_per_chunk = blocks_per_chunk
        self.total = num_chunks * blocks_per_chunk

    def __len__(self):
        return self.total

    def __getitem__(self, index):
        return self.loader.load_item(index // self.blocks_per_chunk, index % self.blocks_per_chunk)


if __name__ == "__main__":
    torch.manual_seed(0)
    remote, cache = tempfile.mkdtemp(), tempfile.mkdtemp()
    make_remote(remote)
    block = 257
    dataset = StreamingTokens(TokensLoader(remote, cache, block), 6, (1 << 17) // block)
    model = nn.Sequential(nn.Embedding(VOCAB, 32), nn.Linear(32, VOCAB))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in enumerate(DataLoader(dataset, batch_size=8)):
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
