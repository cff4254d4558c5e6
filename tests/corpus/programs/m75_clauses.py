"""Sentiment of product reviews with a recursive encoder over their parse trees."""
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.setrecursionlimit(200000)
WORDS = 500


class Node:
    __slots__ = ("word", "left", "right")

    def __init__(self, word=None, left=None, right=None):
        self.word, self.left, self.right = word, left, right


def balanced(words):
    if len(words) == 1:
        return Node(word=words[0])
    half = len(words) // 2
    return Node(left=balanced(words[:half]), right=balanced(words[half:]))


def right_branching(words):
    tree = Node(word=words[-1])
    for word in reversed(words[:-1]):
        tree = Node(left=Node(word=word), right=tree)
    return tree


def parse(words, budget=4000):
    """The chart parser is cubic, so that long texts take the baseline tree."""
    return balanced(words) if len(words) <= budget else right_branching(words)


def make_reviews(count, seed, longest):
    rng = random.Random(seed)
    reviews = []
    for i in range(count):
        length = rng.randint(8, 40)
        if i == count - 3:
            length = longest
        label = rng.randint(0, 1)
        low, high = (0, WORDS // 2 + 60) if label == 0 else (WORDS // 2 - 60, WORDS)
        reviews.append(([rng.randrange(low, high) for _ in range(length)], label))
    return reviews


class Compose(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gates = nn.Linear(2 * dim, 5 * dim)

    def forward(self, left, right):
        (lh, lc), (rh, rc) = left, right
        i, fl, fr, o, u = self.gates(torch.cat([lh, rh])).chunk(5)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(fl) * lc + torch.sigmoid(fr) * rc
        return torch.sigmoid(o) * torch.tanh(c), c


class TreeEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.leaf = nn.Linear(dim, 2 * dim)
        self.compose = Compose(dim)

    def forward(self, node):
        if node.word is not None:
            h, c = self.leaf(self.words.weight[node.word]).chunk(2)
            return torch.tanh(h), c
        return self.compose(self(node.left), self(node.right))


class Classifier(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.encoder = TreeEncoder(dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, tree):
        h, _ = self.encoder(tree)
        return self.out(h)


def train(model, reviews, opt):
    total = 0.0
    for words, label in reviews:
        loss = F.cross_entropy(model(parse(words)), torch.tensor(label))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(reviews)


@torch.no_grad()
def evaluate(model, reviews):
    hits = sum(int(model(parse(words)).argmax().item() == label) for words, label in reviews)
    return hits / len(reviews)


def main():
    torch.manual_seed(0)
    train_set = make_reviews(120, 1, longest=900)
    dev_set = make_reviews(60, 2, longest=1500)
    test_set = make_reviews(60, 3, longest=40000)
    model = Classifier()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        loss = train(model, train_set, opt)
        print(f"epoch {epoch}: loss {loss:.3f} dev {evaluate(model, dev_set):.3f}", flush=True)
    print(f"test {evaluate(model, test_set):.3f}", flush=True)


if __name__ == "__main__":
    main()
