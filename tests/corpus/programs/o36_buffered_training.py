"""Training with a buffered epoch iterator on top of DataLoader workers."""
import os
import queue
import random
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORK = "/tmp/o36_buffered"


class Utterances(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        self.sizes = [rng.randint(10, 60) for _ in range(size)]
        self.gen_seed = seed

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.gen_seed * 100_003 + i)
        feats = torch.randn(self.sizes[i], 20, generator=gen)
        label = int(i % 4)
        feats[:, label] += 1.0
        return feats, label

    @staticmethod
    def collate(items):
        feats = nn.utils.rnn.pad_sequence([f for f, _ in items], batch_first=True)
        return feats, torch.tensor([len(f) for f, _ in items]), torch.tensor([y for _, y in items])


class Producer(threading.Thread):
    def __init__(self, source, out, max_len):
        super().__init__(daemon=True, name="buffer")
        self.source, self.out, self.max_len = source, out, max_len

    def run(self):
        try:
            for n, item in enumerate(self.source, start=1):
                self.out.put(item)
                if n >= self.max_len:
                    self.out.put(None)
                    break
        except Exception as e:
            self.out.put(e)


class BufferedIterator:
    def __init__(self, size, iterable, total):
        self.queue, self.iterable, self.total = queue.Queue(size), iterable, total
        self.producer = None

    def __len__(self):
        return self.total

    def __iter__(self):
        self.producer = Producer(self.iterable, self.queue, self.total)
        self.producer.start()
        while True:
            item = self.queue.get(True)
            if isinstance(item, Exception):
                raise item
            if item is None:
                return
            yield item


class EpochBatches:
    """Buckets by length; batch lists are cached between epochs."""

    def __init__(self, dataset, max_frames, seed, workers=2):
        self.dataset, self.max_frames, self.seed, self.workers = dataset, max_frames, seed, workers
        self.frozen = self.build(range(len(dataset)))
        self.limit = None

    def build(self, ids):
        batches, current, longest = [], [], 0
        for i in sorted(ids, key=lambda i: self.dataset.sizes[i]):
            longest = max(longest, self.dataset.sizes[i])
            if current and longest * (len(current) + 1) > self.max_frames:
                batches.append(current)
                current, longest = [], self.dataset.sizes[i]
            current.append(i)
        return batches + [current]

    def __len__(self):
        return len(self.frozen)

    def next_epoch(self, epoch):
        batches = self.frozen
        if self.limit is not None:
            keep = [i for b in batches for i in b if self.dataset.sizes[i] <= self.limit]
            batches = self.build(keep)
        batches = random.Random(self.seed + epoch).sample(batches, len(batches))
        loader = DataLoader(self.dataset, batch_sampler=batches, num_workers=self.workers,
                            collate_fn=Utterances.collate)
        return BufferedIterator(8, loader, total=len(self))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(20, 32, 5, padding=2)
        self.out = nn.Linear(32, 4)

    def forward(self, feats, lengths):
        h = F.relu(self.conv(feats.transpose(1, 2)))
        return self.out(h.sum(2) / lengths[:, None])


def run_epoch(model, opt, batches):
    seen, correct, start = 0, 0, time.time()
    for feats, lengths, y in batches:
        logits = model(feats, lengths)
        loss = F.cross_entropy(logits, y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        seen += len(y)
        correct += int((logits.argmax(1) == y).sum())
    return correct / seen, time.time() - start


def main():
    torch.manual_seed(0)
    train = EpochBatches(Utterances(400, seed=1), max_frames=800, seed=1)
    valid = EpochBatches(Utterances(80, seed=2), max_frames=1600, seed=2, workers=1)
    model = Classifier()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    os.makedirs(WORK, exist_ok=True)
    for epoch in range(4):
        train.limit = 40 if epoch == 2 else None
        acc, took = run_epoch(model, opt, train.next_epoch(epoch))
        print(f"epoch {epoch} train {acc:.3f} ({len(train)} batches, {took:.1f}s)", flush=True)
        with torch.no_grad():
            acc, took = run_epoch(model, None, valid.next_epoch(epoch))
        print(f"epoch {epoch} valid {acc:.3f} ({took:.1f}s)", flush=True)
        torch.save(model.state_dict(), os.path.join(WORK, "last.pt"))
    print("done")


if __name__ == "__main__":
    main()
