"""Speech command training; recordings differ in number per rank, the ranks train under DDP's join()."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SPEAKERS = ["anna", "boris", "chen", "dora", "emil", "fatma", "gus", "hana"]
TAKES = {"anna": 72, "boris": 64, "chen": 80, "dora": 64, "emil": 64, "fatma": 56, "gus": 72, "hana": 56}


class Recordings(Dataset):
    """Log-mel like frames of short spoken commands of some speakers."""

    def __init__(self, speakers, commands=10, mels=20, frames=30):
        shapes = torch.randn(commands, mels, frames, generator=torch.Generator().manual_seed(1))
        self.items = []
        for speaker in speakers:
            generator = torch.Generator().manual_seed(SPEAKERS.index(speaker))
            for _ in range(TAKES[speaker]):
                label = int(torch.randint(commands, (1,), generator=generator))
                noise = torch.randn(mels, frames, generator=generator)
                self.items.append((shapes[label] + 1.5 * noise, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class CommandNet(nn.Module):
    def __init__(self, commands=10, mels=20):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, 48, 5, padding=2)
        self.conv2 = nn.Conv1d(48, 48, 5, padding=2)
        self.head = nn.Linear(48, commands)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.head(x.mean(2))


class EpochMeter:
    """Loss, hits and count over all ranks, for the progress line."""

    def __init__(self):
        self.sums = torch.zeros(3, dtype=torch.float64)

    def add(self, loss, logits, labels):
        hits = (logits.argmax(1) == labels).sum().item()
        part = torch.tensor([loss.item() * len(labels), hits, len(labels)], dtype=torch.float64)
        dist.all_reduce(part)
        self.sums += part

    def line(self):
        loss, hits, count = self.sums.tolist()
        return f"loss {loss / count:.4f} accuracy {hits / count:.3f}"


def train_epoch(model, loader, optimizer, rank, epoch, log_every):
    meter = EpochMeter()
    with model.join():
        for step, (features, labels) in enumerate(loader):
            logits = model(features)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.add(loss.detach(), logits, labels)
            if rank == 0 and step % log_every == 0:
                print(f"epoch {epoch} step {step} {meter.line()}", flush=True)
    return meter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--log-every", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    dataset = Recordings(SPEAKERS[rank::world])
    generator = torch.Generator().manual_seed(rank)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, generator=generator)
    print(f"rank {rank}: {len(dataset)} recordings, {len(loader)} batches", flush=True)
    model = DDP(CommandNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        meter = train_epoch(model, loader, optimizer, rank, epoch, args.log_every)
        if rank == 0:
            print(f"epoch {epoch} done: {meter.line()}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "commands.pt")
        print("saved commands.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
