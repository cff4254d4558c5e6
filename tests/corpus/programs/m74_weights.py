"""Train on all ranks and hand the newest weights to an evaluator through a key-value board."""
import io
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Settings:
    def __init__(self):
        self.world = 2
        self.host = os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        self.port = int(os.environ.setdefault("MASTER_PORT", "29673"))
        self.epochs = 4


class WeightBoard:
    """Keeps the newest weights; the launcher serves, the ranks publish and fetch."""

    def __init__(self, settings, serve=False):
        self.store = dist.TCPStore(
            host_name=settings.host,
            port=settings.port,
            is_master=serve,
            wait_for_workers=False,
            timeout=timedelta(seconds=120),
        )

    def publish(self, version, module):
        data = io.BytesIO()
        torch.save(module.state_dict(), data)
        self.store.set(f"weights/{version}", data.getvalue())

    def fetch(self, version, module):
        data = self.store.get(f"weights/{version}")
        module.load_state_dict(torch.load(io.BytesIO(data)))


class Policy(nn.Module):
    def __init__(self, state=8, actions=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state, 64), nn.Tanh(), nn.Linear(64, actions))

    def forward(self, x):
        return self.net(x)


def make_demonstrations(count=2048):
    g = torch.Generator().manual_seed(3)
    states = torch.randn(count, 8, generator=g)
    teacher = torch.randn(8, 4, generator=g)
    return TensorDataset(states, (states @ teacher).argmax(1))


def clone_epoch(model, loader, opt):
    total = torch.zeros(2)
    for states, actions in loader:
        logits = model(states)
        loss = F.cross_entropy(logits, actions)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += torch.tensor([loss.item(), (logits.argmax(1) == actions).float().mean()])
    total /= len(loader)
    if dist.is_initialized():
        dist.all_reduce(total)
        total /= dist.get_world_size()
    return total.tolist()


def rollout(policy, steps=200):
    g = torch.Generator().manual_seed(11)
    state, counts = torch.randn(8, generator=g), [0] * 4
    with torch.no_grad():
        for _ in range(steps):
            action = int(policy(state).argmax())
            counts[action] += 1
            state = 0.9 * state + 0.1 * torch.randn(8, generator=g)
            state[action] += 0.05
    return counts


def worker(rank, settings):
    dist.init_process_group("gloo", rank=rank, world_size=settings.world)
    torch.manual_seed(0)
    board = WeightBoard(settings)
    model = DistributedDataParallel(Policy())
    board.fetch("pretrained", model.module)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = make_demonstrations()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    actor = Policy()
    for epoch in range(settings.epochs):
        sampler.set_epoch(epoch)
        loss, hits = clone_epoch(model, loader, opt)
        if rank == 0:
            board.publish(epoch, model.module)
            print(f"epoch {epoch}: loss {loss:.3f} accuracy {hits:.3f}", flush=True)
        else:
            board.fetch(epoch, actor)
            print(f"actor of rank {rank}: actions {rollout(actor)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    settings = Settings()
    board = WeightBoard(settings, serve=True)
    torch.manual_seed(0)
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    loss, hits = clone_epoch(policy, DataLoader(make_demonstrations(512), batch_size=64), opt)
    board.publish("pretrained", policy)
    print(f"pretraining: loss {loss:.3f} accuracy {hits:.3f}", flush=True)
    mp.spawn(worker, args=(settings,), nprocs=settings.world)
    board.fetch(settings.epochs - 1, policy)
    print(f"final policy: actions {rollout(policy)}", flush=True)


if __name__ == "__main__":
    main()
