"""Toxicity model over whole comment threads: a recursive network folds replies into their parent."""
import argparse
import sys

import numpy as np
import torch
from torch import nn

sys.setrecursionlimit(1_000_000)


class Comment:
    __slots__ = ("tokens", "replies")

    def __init__(self, tokens):
        self.tokens = tokens
        self.replies = []


def sample_tokens(rng, vocab):
    return torch.from_numpy(rng.integers(0, vocab, int(rng.integers(3, 12))))


def discussion_thread(rng, vocab, n_comments):
    root = Comment(sample_tokens(rng, vocab))
    pool = [root]
    for _ in range(n_comments - 1):
        parent = pool[int(rng.integers(0, len(pool)))]
        reply = Comment(sample_tokens(rng, vocab))
        parent.replies.append(reply)
        pool.append(reply)
    return root


def counting_thread(rng, vocab, n_comments):
    root = Comment(sample_tokens(rng, vocab))
    node = root
    for _ in range(n_comments - 1):
        reply = Comment(sample_tokens(rng, vocab))
        node.replies.append(reply)
        node = reply
    return root


def load_corpus(args):
    rng = np.random.default_rng(args.seed)
    threads = []
    for subreddit, n_threads in (("news", 20), ("askscience", 20)):
        for _ in range(n_threads):
            thread = discussion_thread(rng, args.vocab, int(rng.integers(20, 120)))
            threads.append((subreddit, thread, float(rng.integers(0, 2))))
    for _ in range(2):
        thread = counting_thread(rng, args.vocab, args.counting_length)
        threads.append(("counting", thread, 0.0))
    return threads


class ThreadEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.gate = nn.Linear(2 * dim, dim)
        self.update = nn.Linear(2 * dim, dim)

    def forward(self, comment):
        own = self.embed(comment.tokens.unsqueeze(0))
        if not comment.replies:
            return torch.tanh(own)
        below = torch.stack([self(reply) for reply in comment.replies]).mean(0)
        pair = torch.cat([own, below], dim=1)
        gate = torch.sigmoid(self.gate(pair))
        return gate * torch.tanh(self.update(pair)) + (1 - gate) * below


class ThreadClassifier(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.encoder = ThreadEncoder(vocab, dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, thread):
        return self.out(self.encoder(thread)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=500)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--counting-length", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    corpus = load_corpus(args)
    print(f"{len(corpus)} threads")
    model = ThreadClassifier(args.vocab, args.dim)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    running = 0.0
    for step, (subreddit, thread, label) in enumerate(corpus, 1):
        logit = model(thread)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, torch.tensor([label]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if step % 10 == 0:
            print(f"step {step} ({subreddit}): loss {running / 10:.4f}", flush=True)
            running = 0.0
    print("finished")


if __name__ == "__main__":
    main()
