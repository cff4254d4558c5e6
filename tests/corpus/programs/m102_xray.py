"""Two-rank training of a chest X-ray classifier with a validation pass and early stopping."""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


class XrayDataset(Dataset):
    def __init__(self, n=240, size=32, seed=3):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        lungs = (((xx.abs() - 0.45) / 0.35) ** 2 + (yy / 0.8) ** 2 < 1).float()
        self.labels = torch.randint(0, 2, (n,), generator=g)
        centre = torch.rand(n, 2, 1, 1, generator=g) - 0.5
        opacity = torch.exp(-((xx - centre[:, 0]) ** 2 + (yy - centre[:, 1]) ** 2) / 0.05)
        images = lungs[None] + opacity * self.labels.view(-1, 1, 1)
        self.images = (images + 0.2 * torch.randn(n, size, size, generator=g)).unsqueeze(1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        return self.images[idx], self.labels[idx]


class XrayNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.fc = nn.Linear(2 * width, 2)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 2)
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


def train_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    correct, seen = 0, 0
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum().item()
        seen += len(labels)
    return correct / seen


class Checkpointer:
    def __init__(self, folder):
        self.path = os.path.join(folder, "best.pt")
        self.best = -1.0

    def update(self, model, accuracy, epoch):
        if accuracy > self.best:
            self.best = accuracy
            torch.save({"epoch": epoch, "model": model.module.state_dict()}, self.path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--val-every", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    dataset = XrayDataset()
    train_set, val_set = Subset(dataset, range(192)), Subset(dataset, range(192, 240))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=16)

    model = DDP(XrayNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(folder)
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            loss = train_epoch(model, train_loader, optimizer)
            if rank == 0:
                print(f"epoch {epoch}: train loss {loss:.4f}", flush=True)
            if (epoch + 1) % args.val_every == 0:
                if rank == 0:
                    accuracy = validate(model, val_loader)
                    checkpointer.update(model, accuracy, epoch)
                    print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
