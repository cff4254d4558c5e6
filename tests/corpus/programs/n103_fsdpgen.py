"""Character language model trained with FSDP2; a sample is written after every epoch."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TEXT = (
    "the quick brown fox jumps over the lazy dog while the five boxing wizards jump quickly "
    "and a mad boxer shot a quick gloved jab to the jaw of his dizzy opponent "
)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.norm2(x))


class CharModel(nn.Module):
    def __init__(self, vocab, dim=64, heads=4, depth=2, context=64):
        super().__init__()
        self.context = context
        self.token_embedding = nn.Embedding(vocab, dim)
        self.position_embedding = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def logits(self, tokens):
        positions = torch.arange(tokens.shape[1])
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def forward(self, tokens, targets):
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, prompt, length):
        tokens = prompt
        for _ in range(length):
            logits = self.logits(tokens[:, -self.context:])
            tokens = torch.cat([tokens, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
        return tokens


class Corpus:
    def __init__(self, text, context, rank):
        self.letters = sorted(set(text))
        self.lookup = {letter: i for i, letter in enumerate(self.letters)}
        self.data = self.encode(text * 20)
        self.context = context
        self.rng = torch.Generator().manual_seed(rank)

    def encode(self, text):
        return torch.tensor([self.lookup[letter] for letter in text])

    def decode(self, tokens):
        return "".join(self.letters[i] for i in tokens.tolist())

    def batch(self, size):
        starts = torch.randint(0, len(self.data) - self.context - 1, (size,), generator=self.rng)
        rows = torch.stack([self.data[s:s + self.context + 1] for s in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    corpus = Corpus(TEXT, context=64, rank=rank)
    model = CharModel(len(corpus.letters))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for epoch in range(args.epochs):
        for _ in range(args.steps):
            loss = model(*corpus.batch(args.batch_size))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
        sample = model.generate(corpus.encode("the ").unsqueeze(0), 40)
        if rank == 0:
            print("sample:", corpus.decode(sample[0]), flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
