"""Popularity baseline and item-bias model on an implicit feedback log."""
import numpy as np
import torch
from torch import nn


def load_log(num_users=600, num_items=400, num_events=20000, seed=3):
    rng = np.random.default_rng(seed)
    users = rng.integers(0, num_users, num_events)
    items = rng.zipf(1.3, num_events) % (num_items + 25)
    return users, items


class Vocab:
    def __init__(self, names):
        self.stoi = {n: i for i, n in enumerate(names)}

    def __len__(self):
        return len(self.stoi)

    def encode(self, names):
        return [self.stoi.get(n, -1) for n in names]


def build_matrix(users, items, user_vocab, item_vocab):
    rows = torch.tensor(user_vocab.encode(users.tolist()))
    cols = torch.tensor(item_vocab.encode(items.tolist()))
    vals = torch.ones(len(rows))
    shape = (len(user_vocab), len(item_vocab))
    return torch.sparse_coo_tensor(torch.stack([cols, rows]), vals, shape[::-1])


class ItemBias(nn.Module):
    def __init__(self, popularity):
        super().__init__()
        self.bias = nn.Parameter(torch.log1p(popularity))

    def forward(self, items):
        return self.bias[items]


def main():
    num_users, num_items = 600, 400
    users, items = load_log(num_users, num_items)
    user_vocab = Vocab(range(num_users))
    item_vocab = Vocab(range(num_items))
    split = int(0.8 * len(users))
    print(f"train {split} events, test {len(users) - split} events", flush=True)

    train = build_matrix(users[:split], items[:split], user_vocab, item_vocab)
    print("matrix", tuple(train.shape), "nnz", train._nnz(), flush=True)

    popularity = torch.sparse.sum(train, dim=1).to_dense()
    print("most popular", popularity.topk(5).indices.tolist(), flush=True)

    model = ItemBias(popularity)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        pos = torch.from_numpy(items[:split] % num_items)
        neg = torch.randint(0, num_items, pos.shape)
        loss = -torch.log(torch.sigmoid(model(pos) - model(neg))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} bpr {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
