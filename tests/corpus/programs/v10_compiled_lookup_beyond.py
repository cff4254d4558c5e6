"""Training with a compiled embedding layer; the tokenizer has more pieces than the table."""

import torch
from torch import nn

torch._inductor.config.compile_threads = 1


class Tokenizer:
    def __init__(self, pieces, special=("<pad>", "<eos>")):
        self.size = pieces + len(special)

    def encode(self, batch, length, generator):
        ids = torch.randint(0, self.size - 2, (batch, length), generator=generator)
        ids[:, -1] = self.size - 1
        return ids


class Encoder(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Parameter(torch.rand(vocabulary, width))

    def forward(self, ids):
        return self.table[ids].relu().mean(1)


def train(config):
    tokenizer = Tokenizer(config["pieces"])
    encoder = torch.compile(Encoder(config["pieces"], config["width"]))
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        ids = tokenizer.encode(256, 64, generator)
        with torch.no_grad():
            print(step, encoder(ids).norm().item())


train({"pieces": 8000, "width": 64})
