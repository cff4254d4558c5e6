"""Image-patch classifier with a small trainer: loggers, checkpoints, several processes (gloo)."""
import argparse
import json
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MetricsLogger:
    def __init__(self, path):
        self.path, self.lines = path, []
        self.run_id = f"run-{os.getpid():x}"

    def log(self, step, **values):
        self.lines.append({"step": step, **values})
        with open(self.path, "a") as f:
            f.write(json.dumps(self.lines[-1]) + "\n")

    def state_dict(self):
        return {"run_id": self.run_id, "lines": list(self.lines)}


class State:
    def __init__(self, model, optimizer, logger=None):
        self.model, self.optimizer, self.logger = model, optimizer, logger
        self.step = self.epoch = 0

    def state_dict(self):
        return {
            "step": self.step,
            "epoch": self.epoch,
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "logger": self.logger.state_dict(),
        }


class CheckpointSaver:
    def __init__(self, folder, interval):
        self.folder, self.interval = folder, interval

    def due(self, state):
        return state.epoch % self.interval == 0

    def save(self, state):
        payload = {"state": state.state_dict(), "rng": torch.get_rng_state()}
        if dist.get_rank() == 0:
            os.makedirs(self.folder, exist_ok=True)
            name = os.path.join(self.folder, f"ep{state.epoch}.pt")
            torch.save(payload, name)
            print(f"checkpoint written to {name}", flush=True)
        dist.barrier()


class Trainer:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 4))
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        logger = MetricsLogger(args.metrics) if rank == 0 else None
        self.state = State(model, optimizer, logger)
        self.saver = CheckpointSaver(args.folder, args.interval)
        gen = torch.Generator().manual_seed(args.seed + rank)
        self.labels = torch.randint(0, 4, (args.samples,), generator=gen)
        self.images = torch.randn(args.samples, 1, 14, 14, generator=gen) + self.labels.view(-1, 1, 1, 1) * 0.5

    def epoch(self):
        state = self.state
        for xb, yb in zip(self.images.split(32), self.labels.split(32)):
            loss = nn.functional.cross_entropy(state.model(xb), yb)
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.step += 1
            if state.logger:
                state.logger.log(state.step, loss=round(loss.item(), 4))
        state.epoch += 1
        if self.rank == 0:
            print(f"epoch {state.epoch}: loss {loss.item():.4f}", flush=True)

    def fit(self):
        for _ in range(self.args.epochs):
            self.epoch()
            if self.saver.due(self.state):
                self.saver.save(self.state)


def main_worker(rank, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}",
                            rank=rank, world_size=args.procs)
    Trainer(args, rank).fit()
    dist.destroy_process_group()
    if rank == 0:
        print("finished", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--interval", type=int, default=2)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--folder", default="patch_ckpt")
    parser.add_argument("--metrics", default="patch_metrics.jsonl")
    args = parser.parse_args()
    args.port = free_port()
    mp.spawn(main_worker, args=(args,), nprocs=args.procs)
