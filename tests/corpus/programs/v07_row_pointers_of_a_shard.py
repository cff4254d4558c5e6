"""Interactions of users and items in shards of CSR, turned into edges for message passing."""

import torch


class Interactions:
    def __init__(self, users, per_user, items):
        self.crow = torch.arange(0, users * per_user + 1, per_user)
        self.col = torch.randint(0, items, (users * per_user,)).view(users, per_user).sort(1).values.flatten()
        self.items = items

    def shard(self, first, last):
        begin, end = int(self.crow[first]), int(self.crow[last])
        crow = self.crow[first : last + 1]
        col = self.col[begin:end]
        return torch.sparse_csr_tensor(crow, col, torch.ones(len(col)), (last - first, self.items))


def edges(shard):
    coo = shard.to_sparse_coo()
    return coo.indices(), coo.values()


def epoch(data, shards, users):
    size = users // shards
    table = torch.rand(data.items, 16)
    for number in reversed(range(shards)):
        index, weights = edges(data.shard(number * size, (number + 1) * size))
        messages = table[index[1]] * weights[:, None]
        print("shard", number, messages.mean().item())


epoch(Interactions(800_000, 20, 5000), 8, 800_000)
