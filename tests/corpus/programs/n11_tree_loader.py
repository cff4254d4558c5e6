"""Tree-LSTM style encoder over very deep parse trees."""
import random
import resource
import sys
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def allow_deep_trees(depth=200_000, stack_gib=64):
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (stack_gib << 30, hard))
    sys.setrecursionlimit(depth)


class ParseTrees(Dataset):
    def __init__(self, n, vocab=200, seed=0):
        rng = random.Random(seed)
        self.trees = [self._grow(rng, rng.randint(3, 60), vocab) for _ in range(n)]

    def _grow(self, rng, depth, vocab):
        node = (rng.randrange(vocab), None, None)
        for _ in range(depth):
            leaf = (rng.randrange(vocab), None, None)
            node = (rng.randrange(vocab), node, leaf)
        return node

    def _flatten(self, node, out):
        if node is None:
            return 0
        out.append(node[0])
        return 1 + max(self._flatten(node[1], out), self._flatten(node[2], out))

    def __len__(self):
        return len(self.trees)

    def __getitem__(self, i):
        tokens = []
        depth = self._flatten(self.trees[i], tokens)
        tokens = (tokens + [0] * 128)[:128]
        return torch.tensor(tokens), torch.tensor(float(depth))


class Encoder(nn.Module):
    def __init__(self, vocab=200, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1)).squeeze(1)


def main():
    allow_deep_trees()
    torch.manual_seed(0)
    loader = DataLoader(ParseTrees(512), batch_size=32, shuffle=True,
                        num_workers=2, multiprocessing_context="spawn")
    model = Encoder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        for tokens, depth in loader:
            loss = nn.functional.mse_loss(model(tokens), depth)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.2f}", flush=True)


if __name__ == "__main__":
    main()
