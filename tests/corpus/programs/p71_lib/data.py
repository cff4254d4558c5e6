import torch
from torch.utils.data import DataLoader, Dataset


class PatchDataset(Dataset):
    """Images already cut into 64 patches of 4x4x3 values."""

    def __init__(self, n, classes, seed):
        g = torch.Generator().manual_seed(seed)
        centres = torch.randn(classes, 48, generator=torch.Generator().manual_seed(3))
        self.labels = torch.randint(0, classes, (n,), generator=g)
        noise = torch.randn(n, 64, 48, generator=g)
        self.patches = centres[self.labels][:, None, :] + noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.patches[i], self.labels[i]


def make_loaders(batch_size, classes):
    train = PatchDataset(512, classes, seed=1)
    val = PatchDataset(128, classes, seed=2)
    return (DataLoader(train, batch_size, shuffle=True, drop_last=True),
            DataLoader(val, batch_size))
