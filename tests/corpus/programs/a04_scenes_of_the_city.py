import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CityScenes(Dataset):
    def __init__(self, split, n_classes=5):
        self.split = split
        self.n_classes = n_classes
        self.files = [f"{split}_{i:04d}.png" for i in range(33 if split == "train" else 8)]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        image = torch.randn(3, 32, 32, generator=gen)
        label = torch.randint(0, self.n_classes, (32, 32), generator=gen)
        return image, label


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin, cout, k, pad):
        super().__init__(nn.Conv2d(cin, cout, k, padding=pad, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class PyramidPooling(nn.Module):
    def __init__(self, channels, sizes):
        super().__init__()
        self.sizes = sizes
        self.paths = nn.ModuleList(ConvBNReLU(channels, channels // len(sizes), 1, 0) for _ in sizes)

    def forward(self, x):
        out = [x]
        for size, path in zip(self.sizes, self.paths):
            pooled = path(F.adaptive_avg_pool2d(x, size))
            out.append(F.interpolate(pooled, x.shape[2:], mode="bilinear", align_corners=False))
        return torch.cat(out, 1)


class PSPNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.backbone = nn.Sequential(ConvBNReLU(3, 16, 3, 1), nn.MaxPool2d(2), ConvBNReLU(16, 16, 3, 1))
        self.pyramid = PyramidPooling(16, (6, 3, 2, 1))
        self.classifier = nn.Conv2d(32, n_classes, 1)

    def forward(self, x):
        out = self.classifier(self.pyramid(self.backbone(x)))
        return F.interpolate(out, x.shape[2:], mode="bilinear", align_corners=False)


def train():
    torch.manual_seed(0)
    dataset = CityScenes("train")
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=1)
    model = PSPNet(dataset.n_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(3):
        model.train()
        for i, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"Epoch [{epoch}] Iter [{i}] Loss: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train()
