import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, n, augment):
        self.n, self.augment = n, augment

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        points = torch.rand(int(torch.randint(200, 400, (1,), generator=gen)), 3, generator=gen)
        return self.augment(points), int(points[:, 2].mean() > 0.5)


def batch(items, scale):
    """All points in one list, with the number of the scene in front."""
    rows = [torch.cat([torch.full((len(p), 1), float(i)), p * scale], 1) for i, (p, _) in enumerate(items)]
    return torch.cat(rows), torch.tensor([label for _, label in items])


def make_loaders(config):
    if config["augment"]:
        augment = lambda points: points + torch.randn_like(points) * config["jitter"]
    else:
        augment = torch.Tensor.contiguous
    train = Scenes(64, augment)
    test = Scenes(16, torch.Tensor.contiguous)
    return {
        name: DataLoader(
            data,
            batch_size=config["batch"],
            num_workers=config["workers"],
            multiprocessing_context="spawn",
            collate_fn=Collate(config["scale"]),
        )
        for name, data in {"train": train, "test": test}.items()
    }


class Collate:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, items):
        return batch(items, self.scale)


def main():
    torch.manual_seed(0)
    config = {"augment": True, "jitter": 0.01, "batch": 8, "workers": 2, "scale": 20.0}
    model = nn.Linear(3, 2)
    loaders = make_loaders(config)
    for rows, labels in loaders["train"]:
        means = torch.stack([rows[rows[:, 0] == i, 1:].mean(0) for i in range(len(labels))])
        print(round(nn.functional.cross_entropy(model(means), labels).item(), 4), flush=True)


if __name__ == "__main__":
    main()
