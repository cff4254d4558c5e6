import argparse
import logging
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
log = logging.getLogger("depth")


class DepthPairs(Dataset):
    def __init__(self, count, seed, size=24):
        g = torch.Generator().manual_seed(seed)
        slope = torch.rand(count, 2, generator=g)
        axis = torch.linspace(0, 1, size)
        plane = slope[:, :1, None] * axis[None, :, None] + slope[:, 1:, None] * axis[None, None, :]
        self.depth = (plane + 0.2).unsqueeze(1)
        tint = torch.rand(count, 3, 1, 1, generator=g)
        self.image = torch.exp(-self.depth) * tint + 0.02 * torch.randn(count, 3, size, size, generator=g)

    def __len__(self):
        return len(self.depth)

    def __getitem__(self, i):
        return self.image[i], self.depth[i]


class DepthNet(nn.Module):
    def __init__(self, width=24, error="scale_invariant"):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        )
        self.decoder = nn.Conv2d(width, 1, 3, padding=1)
        if error == "scale_invariant":
            self.fn_error = lambda pred, gt: (pred - gt).pow(2).mean() - 0.5 * (pred - gt).mean().pow(2)
        else:
            self.fn_error = F.l1_loss

    def forward(self, image):
        return F.softplus(self.decoder(self.encoder(image)))

    def loss(self, pred, depth):
        return self.fn_error(pred.log(), depth.log())


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fit(model, data, args, rank=0, epochs=1):
    if dist.is_initialized():
        sampler = DistributedSampler(data)
        net = DDP(model)
    else:
        sampler = None
        net = model
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, shuffle=sampler is None)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        total = 0.0
        for image, depth in loader:
            loss = model.loss(net(image), depth)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        if rank == 0:
            log.info("epoch %d loss %.5f", epoch, total / len(loader))


def worker(rank, model, args, port):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.nprocs)
    torch.manual_seed(args.seed)
    fit(model, DepthPairs(args.samples, args.seed), args, rank, args.epochs)
    if rank == 0:
        with tempfile.TemporaryDirectory() as out:
            torch.save(model.state_dict(), os.path.join(out, "depth.pt"))
        log.info("finished")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nprocs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--warmup-epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = DepthNet()
    fit(model, DepthPairs(args.samples // 4, args.seed + 1), args, epochs=args.warmup_epochs)
    log.info("starting %d training processes", args.nprocs)
    mp.spawn(worker, args=(model, args, free_port()), nprocs=args.nprocs)


if __name__ == "__main__":
    main()
