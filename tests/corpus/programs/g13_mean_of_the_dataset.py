import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SpectrogramDataset(Dataset):
    """Spectrograms of the clips; each is made from its seed when it is asked for."""

    def __init__(self, clips=300, bins=64, frames=50, normalize=None):
        self.clips, self.bins, self.frames = clips, bins, frames
        self.normalize = normalize

    def __len__(self):
        return self.clips

    def __getitem__(self, idx):
        generator = torch.Generator().manual_seed(1000 + idx)
        spectrogram = torch.rand(self.bins, self.frames, generator=generator) * 80 - 40
        label = idx % 10
        if self.normalize is not None:
            mean, std = self.normalize
            spectrogram = (spectrogram - mean) / std
        return spectrogram, label


def compute_mean_std(dataset):
    total, squares, count = 0.0, 0.0, 0
    for spectrogram, _ in dataset:
        total += spectrogram.sum().item()
        squares += (spectrogram**2).sum().item()
        count += spectrogram.numel()
    mean = total / count
    return mean, (squares / count - mean**2) ** 0.5


def train(epochs=2):
    print(f"computing mean and std of {len(SpectrogramDataset())} clips", flush=True)
    mean, std = compute_mean_std(SpectrogramDataset())
    print(f"mean {mean:.3f} std {std:.3f}", flush=True)
    loader = DataLoader(SpectrogramDataset(normalize=(mean, std)), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 50, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
