"""Latent-attention pooling of long recordings into a few vectors for tagging."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SegmentAverage(nn.Module):
    """Averages neighbouring frames so that a recording has a fixed number of segments."""

    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, frames):
        return F.adaptive_avg_pool1d(frames.transpose(1, 2), self.segments).transpose(1, 2)


class LatentPooling(nn.Module):
    def __init__(self, features, dim=64, latents=8, segments=256):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, 1, latents, dim) * 0.02)
        self.reduce = SegmentAverage(segments)
        self.key = nn.Linear(features, dim)
        self.value = nn.Linear(features, dim)

    def forward(self, frames):
        batch = frames.size(0)
        query = self.latents.expand(batch, -1, -1, -1)
        key = self.key(self.reduce(frames)).unsqueeze(1)
        value = self.value(frames).unsqueeze(1)
        pooled = F.scaled_dot_product_attention(query, key, value)
        return pooled.flatten(1)


class Tagger(nn.Module):
    def __init__(self, features=16, dim=64, latents=8, tags=10):
        super().__init__()
        self.pool = LatentPooling(features, dim, latents)
        self.classify = nn.Sequential(nn.LayerNorm(latents * dim), nn.Linear(latents * dim, tags))

    def forward(self, frames):
        return self.classify(self.pool(frames))


def recordings(lengths, features=16):
    for i, length in enumerate(lengths):
        gen = torch.Generator().manual_seed(i)
        frames = torch.randn(1, length, features, generator=gen)
        yield f"rec_{i:03d}", frames, torch.randint(0, 10, (1,), generator=gen)


def main():
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for name, frames, tag in recordings([256, 256, 1_500_000]):
        print(f"{name}: {frames.size(1)} frames", flush=True)
        loss = F.cross_entropy(model(frames), tag)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{name}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
