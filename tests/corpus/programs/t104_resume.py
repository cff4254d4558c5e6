"""Workload runner: trains a click model on two ranks, can go on from the last checkpoint of the experiment."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class ClickModel(nn.Module):
    def __init__(self, fields=8, vocab=200, dim=8):
        super().__init__()
        self.embedding = nn.Embedding(fields * vocab, dim)
        self.vocab = vocab
        self.mlp = nn.Sequential(nn.Linear(fields * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, fields):
        return self.mlp(self.embedding(fields + torch.arange(fields.shape[1]) * self.vocab).flatten(1)).squeeze(1)


class InputQueue:
    """Endless stream of batches; every rank has its own part of the log."""

    def __init__(self, rank, batch_size):
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.batch_size = batch_size

    def __next__(self):
        fields = torch.randint(200, (self.batch_size, 8), generator=self.generator)
        clicks = ((fields[:, 0] + fields[:, 3]) % 7 < 3).float()
        return fields, clicks


def get_log_dir(root, experiment, resume):
    if dist.get_rank() != 0:
        return None
    log_dir = os.path.join(root, experiment)
    if os.path.exists(log_dir) and not resume:
        for name in os.listdir(log_dir):
            os.remove(os.path.join(log_dir, name))
    os.makedirs(log_dir, exist_ok=True)
    return log_dir


def maybe_restore(log_dir, model, optimizer):
    if log_dir is None or not os.path.exists(os.path.join(log_dir, "checkpoint.pt")):
        return 0
    checkpoint = torch.load(os.path.join(log_dir, "checkpoint.pt"))
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    print(f"restored checkpoint of step {checkpoint['global_step']}", flush=True)
    return checkpoint["global_step"]


def save(log_dir, model, optimizer, global_step):
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "global_step": global_step}
        torch.save(state, os.path.join(log_dir, "checkpoint.pt"))


@torch.no_grad()
def evaluate(model, queue, batches=5):
    model.eval()
    counts = torch.zeros(2)
    for _ in range(batches):
        fields, clicks = next(queue)
        counts[0] += ((model.module(fields) > 0) == clicks.bool()).sum()
        counts[1] += len(clicks)
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def run_submission(args, max_steps, resume):
    rank = dist.get_rank()
    torch.manual_seed(0)
    log_dir = get_log_dir(args.root, args.experiment, resume)
    network = ClickModel()
    optimizer = torch.optim.Adam(network.parameters(), lr=args.lr)
    global_step = maybe_restore(log_dir, network, optimizer)
    model = DDP(network)
    train_queue = InputQueue(rank, args.batch_size)
    eval_queue = InputQueue(50 + rank, args.batch_size)

    while global_step < max_steps:
        fields, clicks = next(train_queue)
        loss = F.binary_cross_entropy_with_logits(model(fields), clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        global_step += 1
        if global_step % args.eval_every == 0:
            accuracy = evaluate(model, eval_queue)
            save(log_dir, model, optimizer, global_step)
            if rank == 0:
                print(f"step {global_step} loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)

    dist.barrier()
    if rank == 0:
        print(f"{max_steps} steps reached", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="experiments")
    parser.add_argument("--experiment", default="clicks")
    parser.add_argument("--steps", type=int, nargs="+", default=[60, 140])
    parser.add_argument("--eval-every", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for part, max_steps in enumerate(args.steps):
        run_submission(args, max_steps, resume=part > 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
