import logging
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("fcn")

DATASETS = {
    "CityScapes": {"classes": 20, "height": 64, "width": 128, "images": 96},
    "CamVid": {"classes": 32, "height": 72, "width": 96, "images": 96},
}

n_class = 20
batch_size = 6
epochs = 2
lr = 1e-3
momentum = 0.9
step_size = 50
gamma = 0.5


class StreetScenes(Dataset):
    def __init__(self, name, split):
        spec = DATASETS[name]
        rng = np.random.default_rng(0 if split == "train" else 1)
        count = spec["images"] if split == "train" else spec["images"] // 4
        self.classes = spec["classes"]
        h, w = spec["height"], spec["width"]
        coarse = rng.integers(0, self.classes, size=(count, h // 8, w // 8))
        self.masks = coarse.repeat(8, axis=1).repeat(8, axis=2)
        palette = np.random.default_rng(9).random((self.classes, 3), dtype=np.float32)
        noise = rng.normal(0, 0.05, size=(count, h, w, 3)).astype(np.float32)
        self.images = palette[self.masks] + noise
        self.mean = self.images.mean(axis=(0, 1, 2))

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i] - self.mean).permute(2, 0, 1)
        label = torch.from_numpy(self.masks[i])
        h, w = label.shape
        target = torch.zeros(self.classes, h, w)
        target.scatter_(0, label.unsqueeze(0), 1.0)
        return {"X": image.contiguous(), "Y": target, "l": label}


def stage(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([stage(3, 16), stage(16, 32), stage(32, 64)])

    def forward(self, x):
        feats = []
        for s in self.stages:
            x = s(x)
            feats.append(x)
        return feats


class FCN(nn.Module):
    def __init__(self, backbone, n_class):
        super().__init__()
        self.backbone = backbone
        self.up1 = nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1, output_padding=1)
        self.up2 = nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=1)
        self.up3 = nn.ConvTranspose2d(16, 16, 3, stride=2, padding=1, output_padding=1)
        self.relu = nn.ReLU()
        self.classifier = nn.Conv2d(16, n_class, 1)

    def forward(self, x):
        c1, c2, c3 = self.backbone(x)
        y = self.relu(self.up1(c3)) + c2
        y = self.relu(self.up2(y)) + c1
        return self.classifier(self.relu(self.up3(y)))


def iou(pred, target, classes):
    values = []
    for cls in range(classes):
        p, t = pred == cls, target == cls
        union = (p | t).sum().item()
        if union:
            values.append((p & t).sum().item() / union)
    return float(np.mean(values))


def train(model, loader, criterion, optimizer, scheduler, epoch):
    model.train()
    start = time.time()
    for it, batch in enumerate(loader):
        optimizer.zero_grad()
        outputs = model(batch["X"])
        loss = criterion(outputs, batch["Y"])
        loss.backward()
        optimizer.step()
        if it % 4 == 0:
            log.info("epoch%d, iter%d, loss: %.4f", epoch, it, loss.item())
    scheduler.step()
    log.info("finish epoch %d, time elapsed %.1f", epoch, time.time() - start)


@torch.no_grad()
def val(model, loader, epoch):
    model.eval()
    scores = [iou(model(b["X"]).argmax(1), b["l"], n_class) for b in loader]
    log.info("epoch%d, meanIoU: %.4f", epoch, np.mean(scores))


def main():
    torch.manual_seed(3)
    name = sys.argv[1] if len(sys.argv) > 1 else "CamVid"
    train_data, val_data = StreetScenes(name, "train"), StreetScenes(name, "val")
    log.info("%s: %d training images, mean %s", name, len(train_data), np.round(train_data.mean, 3))
    train_loader = DataLoader(train_data, batch_size=batch_size, shuffle=True, num_workers=1)
    val_loader = DataLoader(val_data, batch_size=1)
    model = FCN(Backbone(), n_class)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=lr, momentum=momentum)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=step_size, gamma=gamma)
    for epoch in range(epochs):
        train(model, train_loader, criterion, optimizer, scheduler, epoch)
        val(model, val_loader, epoch)


if __name__ == "__main__":
    main()
