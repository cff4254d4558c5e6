"""Pretrain a small character model on gzip'd text chunks through an endless, prefetched data pipeline."""
import argparse
import gzip
import json
import multiprocessing
import os
import random
import tempfile
import threading
from queue import Queue

import torch
import torch.nn as nn

WORDS = "harbour pilot tide vessel berth crane cargo anchor channel lock quay tug".split()


def write_chunks(folder, chunks, lines):
    rng = random.Random(5)
    for c in range(chunks):
        with gzip.open(os.path.join(folder, f"chunk_{c:03d}.jsonl.gz"), "wt", encoding="utf-8") as f:
            for i in range(lines):
                text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(6, 18)))
                record = {"id": c * lines + i, "body": text}
                if c == chunks - 2 and i == lines // 2:
                    record = {"id": c * lines + i, "title": text}
                f.write(json.dumps(record) + "\n")


class ChunkedReader:
    """Endless iterator over the lines of all chunk files, reshuffled in every pass."""

    def __init__(self, folder, seed=0):
        self.paths = sorted(os.path.join(folder, n) for n in os.listdir(folder))
        self.seed = seed

    def __iter__(self):
        epoch = 0
        while True:
            order = list(self.paths)
            if epoch:
                random.Random(self.seed + epoch).shuffle(order)
            for path in order:
                with gzip.open(path, "rt", encoding="utf-8") as f:
                    for line in f:
                        yield json.loads(line)["body"]
            epoch += 1


class FixedBatches:
    def __init__(self, source, batch_size, seq_len):
        self.source, self.batch_size, self.seq_len = source, batch_size, seq_len

    def __iter__(self):
        rows = []
        for text in self.source:
            codes = [min(ord(ch), 127) for ch in text[: self.seq_len + 1]]
            rows.append(codes + [0] * (self.seq_len + 1 - len(codes)))
            if len(rows) == self.batch_size:
                yield rows
                rows = []


class PrefetchIterator:
    """Runs the source in a process of its own and keeps a buffer of batches in the main process."""

    def __init__(self, source, buffer_size=4):
        self.inter_process = multiprocessing.Queue(maxsize=buffer_size)
        self.local = Queue(maxsize=buffer_size)
        self.process = multiprocessing.Process(target=self._produce, args=(source,), daemon=True)
        self.process.start()
        threading.Thread(target=self._fetch, daemon=True).start()

    def _produce(self, source):
        for batch in source:
            self.inter_process.put(batch)

    def _fetch(self):
        while True:
            self.local.put(self.inter_process.get())

    def __iter__(self):
        return self

    def __next__(self):
        return self.local.get()


class CharModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(128, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, 128)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def train(batches, steps):
    model = CharModel()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss(ignore_index=0)
    for step in range(1, steps + 1):
        rows = torch.tensor(next(batches))
        logits = model(rows[:, :-1])
        loss = loss_fn(logits.flatten(0, 1), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="chunks_") as folder:
        write_chunks(folder, 6, 200)
        pipeline = PrefetchIterator(FixedBatches(ChunkedReader(folder), args.batch_size, 64))
        train(pipeline, args.steps)
    print("done", flush=True)


if __name__ == "__main__":
    main()
