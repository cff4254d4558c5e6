"""Builds the phrase dictionary of a domain corpus, tags the training texts with it
and trains a small tagger-aware language model; the dictionary is cached on disk."""
import os
import pickle
import random
import sys
import time

import torch
import torch.nn as nn

WORK = "/tmp/m41_phrase_trie_data"
sys.setrecursionlimit(1_000_000)


class Node:
    def __init__(self, char=""):
        self.char = char
        self.output = None
        self.fail = None
        self.children = {}


class PhraseTrie:
    def __init__(self):
        self.root = Node()
        self.size = 0

    def add(self, phrase, value):
        node = self.root
        for ch in phrase:
            nxt = node.children.get(ch)
            if nxt is None:
                nxt = node.children[ch] = Node(ch)
            node = nxt
        if node.output is None:
            self.size += 1
        node.output = (len(phrase), value)

    def longest(self, text, start):
        node, best = self.root, None
        for i in range(start, len(text)):
            node = node.children.get(text[i])
            if node is None:
                break
            if node.output is not None:
                best = node.output
        return best

    def tag(self, text):
        tags, i = [0] * len(text), 0
        while i < len(text):
            hit = self.longest(text, i)
            if hit is None:
                i += 1
                continue
            length, value = hit
            tags[i:i + length] = [value] * length
            i += length
        return tags

    def save(self, path):
        with open(path + ".tmp", "wb") as f:
            pickle.dump(self, f, protocol=4)
        os.replace(path + ".tmp", path)


def write_sources():
    """Three glossaries as they come from the vendors."""
    rng = random.Random(11)
    syll = ["ka", "ro", "mi", "ten", "lu", "sor", "ve", "an", "dri", "po"]
    words = sorted({"".join(rng.choices(syll, k=rng.randint(2, 4))) for _ in range(4000)})
    phrases = [" ".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(9000)]
    os.makedirs(WORK, exist_ok=True)
    for name, part, sep in (("med.txt", phrases[:3000], "\n"), ("law.txt", phrases[3000:6000], "\r\n"),
                            ("fin.txt", phrases[6000:], "\r")):
        with open(os.path.join(WORK, name), "w", newline="") as f:
            f.write(sep.join(part))
    return words, phrases


def read_glossary(path):
    with open(path, newline="\n") as f:
        for line in f:
            line = line.strip()
            if line:
                yield line


class TagLM(nn.Module):
    def __init__(self, n_chars, n_tags=4, dim=24):
        super().__init__()
        self.emb = nn.Embedding(n_chars, dim)
        self.tag = nn.Embedding(n_tags, dim)
        self.rnn = nn.GRU(dim, 2 * dim, batch_first=True)
        self.out = nn.Linear(2 * dim, n_chars)

    def forward(self, x, t):
        h, _ = self.rnn(self.emb(x) + self.tag(t))
        return self.out(h)


def make_batches(texts, trie, vocab, width=48):
    xs, ts = [], []
    for text in texts:
        tags = trie.tag(text)
        for i in range(0, len(text) - width, width):
            xs.append([vocab[c] for c in text[i:i + width]])
            ts.append(tags[i:i + width])
    return torch.tensor(xs), torch.tensor(ts)


def main():
    torch.manual_seed(0)
    words, phrases = write_sources()
    trie = PhraseTrie()
    for label, name in enumerate(("med.txt", "law.txt", "fin.txt"), start=1):
        for phrase in read_glossary(os.path.join(WORK, name)):
            trie.add(phrase, label)
        print(f"{name}: {trie.size} phrases so far", flush=True)

    rng = random.Random(5)
    texts = [" ".join(rng.choices(phrases, k=60)) for _ in range(40)]
    vocab = {c: i for i, c in enumerate(sorted(set("".join(texts))))}
    x, t = make_batches(texts, trie, vocab)
    print(f"{len(x)} windows, {(t > 0).float().mean():.1%} of the characters tagged", flush=True)

    model = TagLM(len(vocab))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    start = time.time()
    for step in range(24):
        idx = torch.randint(len(x), (8,))
        logits = model(x[idx, :-1], t[idx, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), x[idx, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 8 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(f"trained in {time.time() - start:.1f}s, writing checkpoint", flush=True)
    torch.save({"model": model.state_dict(), "vocab": vocab}, os.path.join(WORK, "tag_lm.pt"))
    trie.save(os.path.join(WORK, "phrases.pkl"))
    print("saved", sorted(os.listdir(WORK)), flush=True)


if __name__ == "__main__":
    main()
