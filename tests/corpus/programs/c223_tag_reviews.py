"""Review tagging with a bag-of-words encoder on two nodes; every node holds its own part of the corpus."""
import argparse
import logging
import os
from collections import Counter

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("tagger")

STEMS = ["film", "plot", "actor", "scene", "music", "ending", "dialog", "camera", "story", "cast"]
TAGS = 5


def read_corpus(rank, documents):
    """The part of the corpus that lies on this node."""
    rng = np.random.default_rng(1000 + rank)
    texts, tags = [], []
    for _ in range(documents):
        tag = int(rng.integers(TAGS))
        count = int(rng.integers(12, 40))
        kinds = rng.zipf(1.35, size=count) % 4000
        words = [f"{STEMS[k % len(STEMS)]}{k + 7 * tag}" for k in kinds]
        texts.append(words)
        tags.append(tag)
    return texts, tags


class Vocabulary:
    def __init__(self, texts, min_count=2):
        counts = Counter(word for words in texts for word in words)
        self.words = ["<pad>", "<unk>"] + sorted(w for w, n in counts.items() if n >= min_count)
        self.index = {w: i for i, w in enumerate(self.words)}

    def __len__(self):
        return len(self.words)

    def encode(self, words):
        return torch.tensor([self.index.get(w, 1) for w in words])


class Reviews(Dataset):
    def __init__(self, texts, tags, vocabulary):
        self.items = [(vocabulary.encode(words), tag) for words, tag in zip(texts, tags)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    tokens = torch.cat([t for t, _ in batch])
    offsets = torch.tensor([0] + [len(t) for t, _ in batch[:-1]]).cumsum(0)
    return tokens, offsets, torch.tensor([tag for _, tag in batch])


class Tagger(nn.Module):
    def __init__(self, vocabulary_size, width=100):
        super().__init__()
        self.words = nn.EmbeddingBag(vocabulary_size, width, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, TAGS))

    def forward(self, tokens, offsets):
        return self.mlp(self.words(tokens, offsets))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    return parser.parse_args()


def main():
    args = parse_args()
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)

    texts, tags = read_corpus(rank, args.documents)
    vocabulary = Vocabulary(texts)
    dataset = Reviews(texts, tags, vocabulary)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    if rank == 0:
        log.info("%d documents, %d batches per epoch", len(dataset), len(loader))

    model = DDP(Tagger(len(vocabulary)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        total = right = seen = 0
        for tokens, offsets, tag in loader:
            optimizer.zero_grad()
            scores = model(tokens, offsets)
            loss = loss_fn(scores, tag)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(tag)
            right += int((scores.argmax(1) == tag).sum())
            seen += len(tag)
        stats = torch.tensor([total, right, seen], dtype=torch.float64)
        dist.all_reduce(stats)
        if rank == 0:
            log.info("epoch %d loss %.4f accuracy %.3f", epoch, stats[0] / stats[2], stats[1] / stats[2])

    if rank == 0:
        log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
