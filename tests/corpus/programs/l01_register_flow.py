import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class SliceDataset(Dataset):
    """Pairs of 2D slices (moving, fixed), smooth blobs at slightly different places."""

    def __init__(self, n=8, size=96, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.centers = torch.rand(n, 2, generator=g) * 0.6 - 0.3
        self.shifts = torch.rand(n, 2, generator=g) * 0.2 - 0.1
        axis = torch.linspace(-1, 1, size)
        self.yy, self.xx = torch.meshgrid(axis, axis, indexing="ij")

    def __len__(self):
        return len(self.centers)

    def blob(self, c):
        return torch.exp(-(((self.xx - c[0]) ** 2 + (self.yy - c[1]) ** 2) / 0.05))[None]

    def __getitem__(self, i):
        return self.blob(self.centers[i]), self.blob(self.centers[i] + self.shifts[i])


class FlowNet(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(2, ch, 3, padding=1), nn.ReLU(),
            nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU(),
        )
        self.flow = nn.Conv2d(ch, 2, 3, padding=1)
        nn.init.zeros_(self.flow.weight)          # start from the identity transform
        nn.init.zeros_(self.flow.bias)

    def forward(self, moving, fixed):
        return self.flow(self.enc(torch.cat([moving, fixed], 1)))


class SpatialTransformer(nn.Module):
    def forward(self, img, flow):
        b, _, h, w = flow.shape
        eye = torch.eye(2, 3).expand(b, 2, 3)
        grid = F.affine_grid(eye, (b, 1, h, w), align_corners=True)
        grid = grid + flow.permute(0, 2, 3, 1)
        return F.grid_sample(img, grid, mode="bilinear", padding_mode="border", align_corners=True)


def smoothness(flow):
    dx = flow[:, :, :, 1:] - flow[:, :, :, :-1]
    dy = flow[:, :, 1:, :] - flow[:, :, :-1, :]
    return torch.sqrt(dx.abs()).mean() + torch.sqrt(dy.abs()).mean()


def main():
    torch.manual_seed(0)
    loader = DataLoader(SliceDataset(), batch_size=2, shuffle=True)
    model, stn = FlowNet(), SpatialTransformer()
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(5):
        for it, (moving, fixed) in enumerate(loader):
            flow = model(moving, fixed)
            warped = stn(moving, flow)
            sim = F.mse_loss(warped, fixed)
            loss = sim + 0.01 * smoothness(flow)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"epoch {epoch} it {it} sim {sim.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
