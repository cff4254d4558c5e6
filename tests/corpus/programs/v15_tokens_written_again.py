"""Pretraining from a file of tokens that is mapped; another job tokenizes the corpus again."""

import os
import subprocess
import sys

import torch
from torch import nn

PATH = "tokens.bin"


def tokenize(tokens):
    torch.randint(0, 255, (tokens,), dtype=torch.uint8).numpy().tofile(PATH)


def tokenize_again(tokens):
    code = f"import torch; torch.randint(0, 255, ({tokens},), dtype=torch.uint8).numpy().tofile({PATH!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


class Corpus:
    def __init__(self, path):
        self.tokens = torch.from_file(path, shared=True, size=os.path.getsize(path), dtype=torch.uint8)

    def batch(self, step, rows, length):
        begin = step * rows * length % (len(self.tokens) - rows * length)
        return self.tokens[begin : begin + rows * length].view(rows, length).long()


def train(steps):
    tokenize(16_000_000)
    corpus = Corpus(PATH)
    table = nn.Embedding(256, 32)
    for step in range(steps):
        if step == 20:
            tokenize_again(2_000_000)
        ids = corpus.batch(step, 64, 2048)
        if step % 10 == 0:
            print(step, table(ids).mean().item())


train(100)
