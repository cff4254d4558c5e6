import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class ClickLog(Dataset):
    def __init__(self, n_users, n_items, n, seed):
        g = torch.Generator().manual_seed(seed)
        weights = 1.0 / torch.arange(1, n_items + 1).float()
        self.items = torch.multinomial(weights, n, replacement=True, generator=g)
        self.users = torch.randint(0, n_users, (n,), generator=g)
        logits = 1.5 - 0.6 * torch.log1p(self.items.float()) + 0.02 * (self.users % 50 - 25)
        self.clicks = (torch.rand(n, generator=g) < logits.sigmoid()).float()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.users[i], self.items[i], self.clicks[i]


def popularity_tiers(log, n_items, n_tiers):
    """Tier 0 holds the rarest items, the last tier the most frequent ones."""
    seen = torch.bincount(log.items, minlength=n_items)
    scale = torch.log1p(seen.float())
    scale = scale / scale.max() * (n_tiers - 1)
    return scale.round()


def shard_loader(log, rank, world, batch_size):
    sampler = DistributedSampler(log, world, rank, shuffle=True, seed=2)
    return DataLoader(log, batch_size, sampler=sampler), sampler
