"""Pre-train a small next-token model; the corpus is tokenized once and cached on disk.

torchrun --standalone --nproc-per-node 2 v104_tokenize.py
"""
import argparse
import os
import random
from collections import Counter
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def make_corpus(n_words, seed=5):
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfghjklmnprstv" for b in "aeiou"]
    lexicon = ["".join(rng.choices(syllables, k=rng.randint(2, 5))) for _ in range(2500)]
    return rng.choices(lexicon, weights=[1 / (i + 1) for i in range(len(lexicon))], k=n_words)


class BpeTokenizer:
    def __init__(self):
        self.merges, self.vocab = [], {chr(c): c - 97 for c in range(97, 123)}

    def train(self, words, n_merges):
        table = {w: list(w) for w in set(words)}
        freq = Counter(words)
        for _ in range(n_merges):
            pairs = Counter()
            for word, parts in table.items():
                for pair in zip(parts, parts[1:]):
                    pairs[pair] += freq[word]
            if not pairs:
                break
            best = max(pairs, key=lambda p: (pairs[p], p))
            self.merges.append(best)
            self.vocab["".join(best)] = len(self.vocab)
            for word, parts in table.items():
                table[word] = self.apply(parts, best)
        self.table = table

    @staticmethod
    def apply(parts, pair):
        out, i = [], 0
        while i < len(parts):
            if i + 1 < len(parts) and parts[i] == pair[0] and parts[i + 1] == pair[1]:
                out.append(parts[i] + parts[i + 1])
                i += 2
            else:
                out.append(parts[i])
                i += 1
        return out

    def encode(self, words):
        return [self.vocab[p] for w in words for p in self.table[w]]


def prepare_data(path, n_words, n_merges):
    words = make_corpus(n_words)
    tokenizer = BpeTokenizer()
    tokenizer.train(words, n_merges)
    np.save(path, np.asarray(tokenizer.encode(words), dtype=np.int32))
    print(f"tokenized {n_words} words with {len(tokenizer.vocab)} tokens -> {path}", flush=True)


class NextToken(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(vocab, dim), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, vocab)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def train(model, opt, tokens, steps, rank, tag):
    gen = torch.Generator().manual_seed(rank)
    for step in range(steps):
        at = torch.randint(0, len(tokens) - 33, (16,), generator=gen)
        seq = torch.stack([tokens[i:i + 33] for i in at.tolist()])
        loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"{tag} step {step} loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--merges", type=int, default=1400)
    parser.add_argument("--ddp-timeout", type=int, default=6, help="seconds")
    parser.add_argument("--cache", default="corpus_tokens.npy")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.ddp_timeout))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(NextToken(26 + args.merges))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    train(model, opt, torch.randint(0, 26, (4000,)), 20, rank, "sanity")

    if rank == 0 and not os.path.exists(args.cache):
        prepare_data(args.cache, args.words, args.merges)
    dist.barrier()
    tokens = torch.from_numpy(np.load(args.cache)).long()
    train(model, opt, tokens, 60, rank, "train")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
