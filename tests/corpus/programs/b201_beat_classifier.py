import logging
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("beats")

CLASSES = 4
LENGTH = 96
EPOCHS = 8
TOP_K = 2
SITES = {"north": 0.02, "harbour": 0.40}


class Beats(Dataset):
    def __init__(self, count, seed, disagreement=0.0):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, CLASSES, (count,), generator=g)
        t = torch.linspace(0, 1, LENGTH)
        centre = 0.3 + 0.12 * self.label.float()[:, None]
        width = 0.03 + 0.01 * torch.rand(count, 1, generator=g)
        wave = torch.exp(-((t - centre) / width) ** 2)
        self.signal = (wave + 0.35 * torch.randn(count, LENGTH, generator=g)).unsqueeze(1)
        other = torch.rand(count, generator=g) < disagreement
        moved = (self.label + torch.randint(1, CLASSES, (count,), generator=g)) % CLASSES
        self.label = torch.where(other, moved, self.label)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.signal[i], self.label[i]


class BeatNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, 9, 2, 4)
        self.conv2 = nn.Conv1d(width, width * 2, 5, 2, 2)
        self.fc = nn.Linear(width * 2 * LENGTH // 4, CLASSES)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.flatten(1))


class CheckpointKeeper:
    def __init__(self, folder, rank, top_k):
        self.folder = folder
        self.rank = rank
        self.top_k = top_k
        self.kept = []

    def update(self, epoch, val_loss, model):
        path = os.path.join(self.folder, f"epoch={epoch}.ckpt")
        self.kept.append((val_loss, path))
        self.kept.sort()
        dropped = self.kept[self.top_k:]
        self.kept = self.kept[:self.top_k]
        if self.rank == 0:
            torch.save({"epoch": epoch, "model": model.state_dict()}, path)
            for _, old in dropped:
                os.remove(old)
        dist.barrier()

    @property
    def best_model_path(self):
        return self.kept[0][1]


@torch.no_grad()
def run_eval(net, loader):
    net.eval()
    loss, correct, count = 0.0, 0, 0
    for x, y in loader:
        logits = net(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        correct += (logits.argmax(1) == y).sum().item()
        count += len(y)
    net.train()
    return loss / count, torch.tensor([correct, count], dtype=torch.float64)


def fit(folder, rank, world):
    torch.manual_seed(31)
    train_set = Beats(1280, seed=1, disagreement=0.1)
    site, rate = list(SITES.items())[rank % len(SITES)]
    val_loader = DataLoader(Beats(240, seed=50 + rank, disagreement=rate), batch_size=48)
    test_loader = DataLoader(Beats(240, seed=80 + rank), batch_size=48)
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)

    model = DDP(BeatNet())
    opt = torch.optim.Adam(model.parameters(), lr=8e-4)
    keeper = CheckpointKeeper(folder, rank, TOP_K)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        val_loss, _ = run_eval(model.module, val_loader)
        keeper.update(epoch, val_loss, model.module)
        log.info("rank %d epoch %d train %.4f val[%s] %.4f", rank, epoch, loss.item(), site, val_loss)

    state = torch.load(keeper.best_model_path, weights_only=True)
    model.module.load_state_dict(state["model"])
    _, counts = run_eval(model.module, test_loader)
    dist.all_reduce(counts)
    if rank == 0:
        log.info("test accuracy %.4f from epoch %d", (counts[0] / counts[1]).item(), state["epoch"])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with tempfile.TemporaryDirectory(prefix="beats_") as folder:
        shared = [folder]
        dist.broadcast_object_list(shared, src=0)
        fit(shared[0], rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
