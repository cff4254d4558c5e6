"""Two-phase instruction tuning: a broad knowledge phase, then a short skills phase. Samples are packed into minibatches."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

log = logging.getLogger("phases")


class InstructionSet(Dataset):
    def __init__(self, name, count, vocab, seed):
        rng = np.random.default_rng(seed)
        self.name = name
        self.lengths = rng.integers(24, 160, size=count)
        self.rows = [torch.from_numpy(rng.integers(2, vocab, size=n)) for n in self.lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def first_fit(lengths, capacity):
    """Indices of `lengths` spread over as few packs of `capacity` tokens as first-fit-decreasing finds."""
    order = np.argsort(-lengths, kind="stable")
    room = np.full(len(lengths), capacity, dtype=np.int64)
    packs = []
    for index in order:
        need = lengths[index]
        slot = int(np.argmax(room[: len(packs) + 1] >= need))
        if slot == len(packs):
            packs.append([])
        room[slot] -= need
        packs[slot].append(int(index))
    return packs


def samples_per_minibatch(lengths, pack_len):
    return len(lengths) / len(first_fit(lengths, pack_len))


def find_pack_len(lengths, goal):
    """The smallest pack length with at least `goal` samples in the average minibatch."""
    average = int(lengths.mean())
    low = average
    step = max(1, average * goal // 10)
    high = low + step
    while samples_per_minibatch(lengths, high) <= goal:
        low = high
        step *= 2
        high = low + step
    while high - low > average // 4:
        middle = (low + high) // 2
        if samples_per_minibatch(lengths, middle) < goal:
            low = middle
        else:
            high = middle
    return high


class PackedBatches(Sampler):
    def __init__(self, lengths, pack_len, seed=0):
        self.packs = [p for p in first_fit(lengths, pack_len) if p]
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        for i in torch.randperm(len(self.packs), generator=self.generator).tolist():
            yield self.packs[i]

    def __len__(self):
        return len(self.packs)


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
    return ids[:, :-1], ids[:, 1:]


class TinyLM(nn.Module):
    def __init__(self, vocab, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.head(hidden)


def run_phase(model, optimizer, data, args):
    goal = args.effective_batch_size // args.grad_accum
    pack_len = find_pack_len(data.lengths, goal)
    sampler = PackedBatches(data.lengths, pack_len)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    log.info("phase %s: %d samples, pack length %d, %d minibatches", data.name, len(data), pack_len, len(loader))
    for epoch in range(args.epochs):
        start, total = time.time(), 0.0
        for step, (ids, target) in enumerate(loader):
            loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten(), ignore_index=0) / args.grad_accum
            loss.backward()
            total += loss.item() * args.grad_accum
            if (step + 1) % args.grad_accum == 0 or step + 1 == len(loader):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        log.info("phase %s epoch %d loss %.3f (%.1fs)", data.name, epoch, total / len(loader), time.time() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--effective-batch-size", type=int, default=128)
    parser.add_argument("--grad-accum", type=int, default=4)
    parser.add_argument("--knowledge-samples", type=int, default=300)
    parser.add_argument("--skills-samples", type=int, default=27)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyLM(args.vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    phases = [InstructionSet("knowledge", args.knowledge_samples, args.vocab, 1),
              InstructionSet("skills", args.skills_samples, args.vocab, 2)]
    for data in phases:
        run_phase(model, optimizer, data, args)
    log.info("done")


if __name__ == "__main__":
    main()
