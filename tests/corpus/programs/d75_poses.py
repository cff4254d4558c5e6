"""Pose refinement: go through the frames once and collect the distance of every frame."""
import resource
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, count, points, seed=0):
        self.count, self.points = count, points
        rng = np.random.default_rng(seed)
        self.model = rng.normal(size=(points, 3)).astype(np.float32)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        shift = rng.normal(scale=0.1, size=(1, 3)).astype(np.float32)
        cloud = self.model + shift
        return {"cloud": torch.from_numpy(cloud), "shift": torch.from_numpy(shift[0]),
                "frame": i}


class Refiner(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 3)

    def forward(self, cloud):
        return self.head(self.point(cloud).mean(1))


class History:
    def __init__(self):
        self.frames, self.errors, self.losses = [], [], []

    def add(self, batch, pred, loss):
        self.frames.append(batch["frame"])
        self.errors.append((pred.detach() - batch["shift"]).norm(dim=1))
        self.losses.append(loss.item())

    def summary(self):
        frames, errors = torch.cat(self.frames), torch.cat(self.errors)
        worst = errors.topk(5).indices
        return frames[worst].tolist(), errors.mean().item()


def run(loader, net, opt, history, train):
    for step, batch in enumerate(loader):
        pred = net(batch["cloud"])
        loss = nn.functional.mse_loss(pred, batch["shift"])
        if train:
            opt.zero_grad()
            loss.backward()
            opt.step()
        history.add(batch, pred, loss)
        if step % 100 == 0:
            print(f"  step {step} loss {loss.item():.4f}", flush=True)


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    torch.manual_seed(0)
    net = Refiner()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    small = History()
    run(DataLoader(Frames(400, 100), batch_size=4, num_workers=2), net, opt, small, True)
    print("warm-up", small.summary(), flush=True)
    history = History()
    loader = DataLoader(Frames(6000, 100, seed=0), batch_size=4, num_workers=2)
    run(loader, net, opt, history, True)
    print("done", history.summary(), flush=True)


if __name__ == "__main__":
    main()
