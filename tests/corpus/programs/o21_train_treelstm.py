"""Sentiment scoring over parse trees with a child-sum Tree-LSTM."""
import argparse
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.setrecursionlimit(1_000_000)


class Tree:
    __slots__ = ("word", "children", "label")

    def __init__(self, word=None, children=(), label=0):
        self.word = word
        self.children = list(children)
        self.label = label

    def size(self):
        todo, n = [self], 0
        while todo:
            node = todo.pop()
            n += 1
            todo.extend(node.children)
        return n


class Corpus:
    """Word-id sentences with a label; every source has its own parser."""

    def __init__(self, vocab, seed):
        self.vocab = vocab
        self.rng = random.Random(seed)

    def _tokens(self, n):
        return [self.rng.randrange(self.vocab) for _ in range(n)]

    def _label(self, tokens):
        return int(sum(t % 7 for t in tokens) / len(tokens) > 3)

    def texts(self, count, low, high):
        made = [self._tokens(self.rng.randint(low, high)) for _ in range(count)]
        return [(t, self._label(t)) for t in made]


def balanced(tokens, label):
    if len(tokens) == 1:
        return Tree(word=tokens[0], label=label)
    mid = len(tokens) // 2
    return Tree(children=[balanced(tokens[:mid], label), balanced(tokens[mid:], label)], label=label)


def right_branching(tokens, label):
    tree = Tree(word=tokens[-1], label=label)
    for word in reversed(tokens[:-1]):
        tree = Tree(children=[Tree(word=word), tree], label=label)
    return tree


class ChildSumCell(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.iou = nn.Linear(dim + hidden, 3 * hidden)
        self.f_x = nn.Linear(dim, hidden)
        self.f_h = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, states):
        h_sum = torch.stack([h for h, _ in states]).sum(0)
        i, o, u = self.iou(torch.cat([x, h_sum])).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        for h_k, c_k in states:
            c = c + torch.sigmoid(self.f_x(x) + self.f_h(h_k)) * c_k
        return torch.sigmoid(o) * torch.tanh(c), c


class Encoder(nn.Module):
    def __init__(self, vocab, dim, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.cell = ChildSumCell(dim, hidden)
        self.register_buffer("zero_x", torch.zeros(dim))
        self.register_buffer("zero_h", torch.zeros(hidden))

    def forward(self, tree):
        states = [self(child) for child in tree.children]
        if tree.word is None:
            x = self.zero_x
        else:
            x = self.embed.weight[tree.word]
        return self.cell(x, states or [(self.zero_h, self.zero_h)])


class Classifier(nn.Module):
    def __init__(self, vocab=500, dim=16, hidden=16, classes=2):
        super().__init__()
        self.encoder = Encoder(vocab, dim, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, tree):
        h, _ = self.encoder(tree)
        return self.out(h).unsqueeze(0)


def train(model, trees, opt):
    model.train()
    total = 0.0
    for tree in trees:
        loss = F.cross_entropy(model(tree), torch.tensor([tree.label]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(trees)


@torch.no_grad()
def evaluate(model, trees):
    model.eval()
    hits = sum(int(model(t).argmax() == t.label) for t in trees)
    return hits / len(trees)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--parser", default="right", choices=["right", "balanced"])
    args = ap.parse_args()
    torch.manual_seed(1)
    parse = {"right": right_branching, "balanced": balanced}[args.parser]
    corpus = Corpus(500, seed=4)
    reviews = [parse(t, y) for t, y in corpus.texts(60, 5, 40)]
    held_out = [parse(t, y) for t, y in corpus.texts(3, 24_000, 30_000)]
    print("reviews", len(reviews), "largest", max(t.size() for t in reviews), flush=True)
    model = Classifier()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        start = time.time()
        loss = train(model, reviews, opt)
        acc = evaluate(model, reviews)
        print(f"epoch {epoch} loss {loss:.3f} acc {acc:.2f} {time.time() - start:.1f}s", flush=True)
    print("transfer set", flush=True)
    print(f"transcripts acc {evaluate(model, held_out):.2f}", flush=True)


if __name__ == "__main__":
    main()
