"""A dataset crops as many points as it finds, so the samples of a batch have different sizes; a worker stacks them."""

import torch
from torch.utils.data import DataLoader, Dataset


class Clouds(Dataset):
    def __init__(self, points):
        self.points = points

    def __len__(self):
        return len(self.points)

    def __getitem__(self, number):
        cloud = torch.randn(self.points[number], 3)
        return cloud, torch.tensor(number)


def train(loader):
    for cloud, label in loader:
        print(cloud.shape, label.shape)


train(DataLoader(Clouds([1024] * 12 + [731] + [1024] * 3), batch_size=4, num_workers=2))
