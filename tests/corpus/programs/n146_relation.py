"""Relation extraction with entity markers on top of a small sentence encoder."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PEOPLE = ["alice", "bob", "carla", "dmitri", "elena", "farid"]
PLACES = ["paris", "oslo", "lima", "kyoto", "accra"]
FIRMS = ["acme", "globex", "initech", "umbrella"]
PATTERNS = [
    ("born_in", "{a} was born in {b} long ago", PEOPLE, PLACES),
    ("works_for", "{a} works for {b} since last year", PEOPLE, FIRMS),
    ("based_in", "{a} has its main office in {b}", FIRMS, PLACES),
]


class WordTokenizer:
    def __init__(self, sentences):
        self.vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2}
        for sentence in sentences:
            for word in sentence.split():
                self.vocab.setdefault(word, len(self.vocab))

    def __len__(self):
        return len(self.vocab)

    def add_special_tokens(self, tokens):
        for token in tokens:
            self.vocab.setdefault(token, len(self.vocab))

    def encode(self, text, max_len):
        ids = [self.vocab["[CLS]"]] + [self.vocab.get(w, 1) for w in text.split()]
        return (ids + [0] * max_len)[:max_len]


class Encoder(nn.Module):
    def __init__(self, vocab_size, dim=32, max_len=20):
        super().__init__()
        self.words = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.positions = nn.Embedding(max_len, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)

    def forward(self, ids):
        steps = torch.arange(ids.shape[1])
        return self.layer(self.words(ids) + self.positions(steps))


def build_sentences(n, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        label, pattern, left, right = rng.choice(PATTERNS)
        rows.append((pattern, rng.choice(left), rng.choice(right), label))
    return rows


def pretrain(encoder, tokenizer, rows, steps):
    head = nn.Linear(32, len(tokenizer))
    params = list(encoder.parameters()) + list(head.parameters())
    optimizer = torch.optim.Adam(params, lr=2e-3)
    ids = torch.tensor([tokenizer.encode(p.format(a=a, b=b), 12) for p, a, b, _ in rows])
    for step in range(steps):
        masked = ids.clone()
        masked[torch.rand(ids.shape) < 0.15] = 1
        loss = F.cross_entropy(head(encoder(masked)).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"pretrain loss {loss.item():.4f}, vocabulary {len(tokenizer)}", flush=True)


def mark(pattern, a, b):
    return pattern.format(a=f"[E1] {a} [/E1]", b=f"[E2] {b} [/E2]")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pretrain-steps", type=int, default=15)
    parser.add_argument("--rows", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rows = build_sentences(args.rows, seed=1)
    tokenizer = WordTokenizer(p.format(a=a, b=b) for p, a, b, _ in rows)
    encoder = Encoder(len(tokenizer))
    pretrain(encoder, tokenizer, rows, args.pretrain_steps)

    tokenizer.add_special_tokens(["[E1]", "[/E1]", "[E2]", "[/E2]"])
    labels = {name: i for i, (name, *_) in enumerate(PATTERNS)}
    ids = torch.tensor([tokenizer.encode(mark(p, a, b), 16) for p, a, b, _ in rows])
    target = torch.tensor([labels[label] for *_, label in rows])

    classifier = nn.Linear(32, len(labels))
    params = list(encoder.parameters()) + list(classifier.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-3)
    for epoch in range(args.epochs):
        for start in range(0, len(ids), 32):
            hidden = encoder(ids[start:start + 32])
            loss = F.cross_entropy(classifier(hidden[:, 0]), target[start:start + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
