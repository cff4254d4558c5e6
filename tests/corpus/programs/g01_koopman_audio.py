"""Learn a linear latent dynamics model on log-filterbank frames and watch its spectral radius."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ClipDataset(Dataset):
    def __init__(self, n_clips=48, sr=8000, seconds=1.0, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(int(sr * seconds)) / sr
        self.clips = []
        for i in range(n_clips):
            f0 = 80 + 900 * torch.rand(1, generator=g)
            wav = 0.3 * torch.sin(2 * torch.pi * f0 * t) + 0.01 * torch.randn(t.numel(), generator=g)
            gate = 0.0 if i == 37 else 1.0
            self.clips.append(wav * gate)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, idx):
        return self.features(self.clips[idx])

    @staticmethod
    def features(wav, n_fft=256, hop=128, n_bands=24):
        spec = torch.stft(wav, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True).abs()
        bands = nn.functional.adaptive_avg_pool1d(spec.t(), n_bands)
        bands = torch.log1p(100.0 * bands)
        return (bands - bands.mean()) / bands.std()


class KoopmanNet(nn.Module):
    def __init__(self, n_bands=24, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_bands, 64), nn.Tanh(), nn.Linear(64, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.Tanh(), nn.Linear(64, n_bands))
        self.eye = torch.eye(latent)

    def transition(self, z):
        past, future = z[:, :-1].flatten(0, 1), z[:, 1:].flatten(0, 1)
        gram = past.t() @ past / past.shape[0] + 0.1 * self.eye
        cross = past.t() @ future / past.shape[0]
        return cross / gram.diagonal().sum()

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z), self.transition(z)


@torch.no_grad()
def spectral_radius(A):
    return torch.linalg.eigvals(A).abs().max().item()


def train(args):
    torch.manual_seed(0)
    loader = DataLoader(ClipDataset(), batch_size=args.batch_size, shuffle=False)
    model = KoopmanNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for step, x in enumerate(loader):
            recon, A = model(x)
            radius = spectral_radius(A)
            loss = nn.functional.mse_loss(recon, x) + 1e-2 * torch.linalg.matrix_norm(A)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f} radius {radius:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    train(parser.parse_args())
