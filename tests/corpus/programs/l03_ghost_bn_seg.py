import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CellDataset(Dataset):
    """Random microscopy-like tiles with a binary mask."""

    def __len__(self):
        return 32

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        img = torch.randn(1, 64, 64, generator=g)
        mask = (F.avg_pool2d(img[None], 9, 1, 4)[0] > 0).long()[0]
        return img, mask


class GhostBatchNorm2d(nn.Module):
    """BatchNorm over virtual batches of `vbs` images."""

    def __init__(self, channels, vbs=4, momentum=0.1, eps=1e-5, track=True):
        super().__init__()
        self.vbs, self.momentum, self.eps = vbs, momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        size = channels if track else 0
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))

    def forward(self, x):
        chunks = []
        for chunk in x.split(self.vbs):
            out, _, _ = torch.native_batch_norm(
                chunk, self.weight, self.bias, self.running_mean, self.running_var,
                True, self.momentum, self.eps)
            chunks.append(out)
        return torch.cat(chunks)


def conv_bn(cin, cout, track=True):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False),
                         GhostBatchNorm2d(cout, track=track), nn.ReLU())


class TinyUNet(nn.Module):
    def __init__(self, classes=2, width=16):
        super().__init__()
        self.down1 = conv_bn(1, width)
        self.down2 = conv_bn(width, width * 2)
        self.up = conv_bn(width * 3, width)
        self.aux = conv_bn(width, width, track=False)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x, aux=False):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2)
        y = self.up(torch.cat([a, b], 1))
        if aux:
            y = y + self.aux(y)
        return self.out(y)


def main():
    torch.manual_seed(0)
    loader = DataLoader(CellDataset(), batch_size=8, shuffle=True, num_workers=1)
    model = TinyUNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for img, mask in loader:
            logits = model(img, aux=epoch >= 1)
            loss = F.cross_entropy(logits, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
