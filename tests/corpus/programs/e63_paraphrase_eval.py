"""Fine-tune a small pair classifier on two processes and report dev accuracy.

Run with: torchrun --standalone --nproc-per-node 2 e63_paraphrase_eval.py
"""
import argparse
import logging
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler, TensorDataset

logger = logging.getLogger(__name__)
WORK = "/tmp/e63_paraphrase_eval"
WORDS = [f"tok{i}" for i in range(500)]


def read_examples(split, n):
    rng = random.Random(f"{split}-pairs")
    rows = []
    for _ in range(n):
        a = rng.choices(WORDS, k=rng.randint(5, 12))
        if rng.random() < 0.5:
            b, label = rng.sample(a, k=max(3, len(a) - 2)), 1
        else:
            b, label = rng.choices(WORDS, k=len(a)), 0
        rows.append((a, b, label))
    return rows


def convert_examples_to_features(examples, max_length):
    vocab = {w: i + 2 for i, w in enumerate(WORDS)}
    ids = torch.zeros(len(examples), max_length, dtype=torch.long)
    labels = torch.zeros(len(examples), dtype=torch.long)
    for row, (a, b, label) in enumerate(examples):
        seq = [vocab[w] for w in a] + [1] + [vocab[w] for w in b]
        ids[row, : min(len(seq), max_length)] = torch.tensor(seq[:max_length])
        labels[row] = label
    return {"ids": ids, "labels": labels}


def load_and_cache_examples(args, evaluate=False):
    if args.local_rank not in (-1, 0):
        dist.barrier()  # the first process converts the examples, the others read the cache

    split = "dev" if evaluate else "train"
    cached = os.path.join(WORK, f"cached_{split}_{args.max_length}.pt")
    if os.path.exists(cached) and not args.overwrite_cache:
        logger.info("loading features from cached file %s", cached)
        features = torch.load(cached, weights_only=True)
    else:
        logger.info("creating features from the %s examples", split)
        examples = read_examples(split, 400 if evaluate else 1600)
        features = convert_examples_to_features(examples, args.max_length)
        if args.local_rank in (-1, 0):
            torch.save(features, cached)

    if args.local_rank == 0:
        dist.barrier()

    return TensorDataset(features["ids"], features["labels"])


class PairClassifier(nn.Module):
    def __init__(self, vocab_size=502, dim=48):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.encoder = nn.Sequential(nn.Linear(dim, 96), nn.GELU())
        self.head = nn.Linear(96, 2)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)).amax(1))


def train(args, dataset, model):
    sampler = DistributedSampler(dataset, seed=args.seed)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for ids, labels in loader:
            loss = nn.functional.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
        logger.info("epoch %d mean loss %.4f", epoch, total / len(loader))
    return step


@torch.no_grad()
def evaluate(args, model):
    dataset = load_and_cache_examples(args, evaluate=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=SequentialSampler(dataset))
    model.eval()
    correct = sum((model(ids).argmax(-1) == labels).sum().item() for ids, labels in loader)
    return {"acc": correct / len(dataset)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=28)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--overwrite-cache", action="store_true")
    args = parser.parse_args()
    args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
    logging.basicConfig(level=logging.INFO if args.local_rank in (-1, 0) else logging.WARNING, format="%(asctime)s %(message)s")

    os.makedirs(WORK, exist_ok=True)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")

    dataset = load_and_cache_examples(args)
    model = DistributedDataParallel(PairClassifier())
    steps = train(args, dataset, model)
    logger.info("finished training after %d steps", steps)

    if args.local_rank in (-1, 0):
        torch.save(model.module.state_dict(), os.path.join(WORK, "pytorch_model.bin"))
        best = PairClassifier()
        best.load_state_dict(torch.load(os.path.join(WORK, "pytorch_model.bin"), weights_only=True))
        for key, value in evaluate(args, best).items():
            logger.info("dev %s = %.4f", key, value)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
