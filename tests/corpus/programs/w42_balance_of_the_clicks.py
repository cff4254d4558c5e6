import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Clicks(Dataset):
    def __init__(self, rows, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.labels = (torch.rand(rows, generator=generator) < 0.02).to(torch.uint8)
        self.items = torch.randint(0, 1000, (rows,), generator=generator, dtype=torch.int16)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.items[index].long(), self.labels[index].float()


def balanced_sampler(labels, num_samples):
    counts = torch.bincount(labels, minlength=2).double()
    weights = (1.0 / counts)[labels.long()]
    return WeightedRandomSampler(weights, num_samples=num_samples, replacement=False)


def main():
    dataset = Clicks(20_000_000)
    sampler = balanced_sampler(dataset.labels, num_samples=500_000)
    loader = DataLoader(dataset, batch_size=4096, sampler=sampler)
    model = nn.Sequential(nn.Embedding(1000, 16), nn.Linear(16, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step, (items, labels) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(items).squeeze(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
