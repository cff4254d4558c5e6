"""Clean and encode a text corpus with a pool of processes, then fit a bigram model."""
import multiprocessing as mp
import os
import re
import resource
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/m55_encode_run"
DOCS, WORKERS, BUCKETS = 400, 2, 1024
MARKUP = re.compile(r"^(\s*([\w-]+\s*)+:)?\s*(.*)$", re.S)
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass
class Settings:
    cpu_seconds: int = 4
    chunk: int = 20
    min_words: int = 5


def make_corpus():
    rng = np.random.default_rng(5)
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, rng.integers(2, 9)))
             for _ in range(3000)]
    docs = []
    for i in range(DOCS):
        body = " ".join(words[j] for j in rng.zipf(1.3, 150).clip(max=2999))
        docs.append(f"title {i}: {body}." if i % 3 else body[:20] + ": " + body)
    docs[287] = "-".join(["section"] * 60) + " " + "x" * 60 + " ! " + docs[287]
    return docs


class Encoder:
    def __init__(self, settings):
        self.settings = settings

    def clean(self, text):
        match = MARKUP.match(text)
        return match.group(3) if match else text

    def __call__(self, text):
        words = WORD.findall(self.clean(text).lower())
        if len(words) < self.settings.min_words:
            return np.zeros(0, np.int64)
        return np.array([hash_word(w) for w in words], dtype=np.int64)


def hash_word(word):
    value = 2166136261
    for ch in word.encode():
        value = (value ^ ch) * 16777619 & 0xFFFFFFFF
    return value % BUCKETS


encoder = None


def start_worker(settings):
    global encoder
    resource.setrlimit(resource.RLIMIT_CPU, (settings.cpu_seconds, settings.cpu_seconds))
    torch.set_num_threads(1)
    encoder = Encoder(settings)


def encode_chunk(job):
    index, texts = job
    return index, [encoder(t) for t in texts]


class Corpus:
    def __init__(self, settings):
        self.settings = settings

    def encode(self, docs):
        size = self.settings.chunk
        jobs = [(i, docs[i:i + size]) for i in range(0, len(docs), size)]
        parts, began = {}, time.time()
        with mp.Pool(WORKERS, initializer=start_worker, initargs=(self.settings,)) as pool:
            for done, (index, arrays) in enumerate(pool.imap_unordered(encode_chunk, jobs), 1):
                parts[index] = arrays
                if done % 5 == 0:
                    print(f"{done}/{len(jobs)} chunks {time.time() - began:.1f}s", flush=True)
        ordered = [a for i in sorted(parts) for a in parts[i] if len(a)]
        return np.concatenate(ordered)

    def load(self):
        path = os.path.join(WORK, "tokens.npy")
        os.makedirs(WORK, exist_ok=True)
        np.save(path, self.encode(make_corpus()))
        return torch.from_numpy(np.load(path))


class Bigram(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb, self.out = nn.Embedding(BUCKETS, dim), nn.Linear(dim, BUCKETS)

    def forward(self, ids):
        return self.out(self.emb(ids))


def main():
    torch.manual_seed(0)
    tokens = Corpus(Settings()).load()
    print(f"{len(tokens)} tokens", flush=True)
    model = Bigram()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(50):
        at = torch.randint(0, len(tokens) - 1, (256,))
        loss = F.cross_entropy(model(tokens[at]), tokens[at + 1])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
