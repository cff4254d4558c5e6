import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_log_dir(name):
    if dist.get_rank() != 0:
        return None
    path = os.path.join(tempfile.gettempdir(), f"{name}_{os.getppid()}")
    os.makedirs(path, exist_ok=True)
    return path


def restore(log_dir, model, optim):
    if log_dir is None or not os.path.exists(os.path.join(log_dir, "last.pt")):
        return 0
    state = torch.load(os.path.join(log_dir, "last.pt"))
    model.load_state_dict(state["model"])
    optim.load_state_dict(state["optim"])
    return state["epoch"] + 1


def checkpoint(log_dir, model, optim, epoch):
    if log_dir is not None:
        state = {"model": model.state_dict(), "optim": optim.state_dict(), "epoch": epoch}
        torch.save(state, os.path.join(log_dir, "last.pt"))


def make_loader():
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(512, 10, generator=gen)
    data = TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())
    sampler = DistributedSampler(data, shuffle=True)
    return DataLoader(data, batch_size=32, sampler=sampler), sampler


def fit(log_dir, epochs, resume_last_run=False):
    torch.manual_seed(0)
    loader, sampler = make_loader()
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optim = torch.optim.Adam(net.parameters(), lr=1e-2)
    start = restore(log_dir, net, optim) if resume_last_run else 0
    model = DDP(net)
    for epoch in range(start, epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
        checkpoint(log_dir, net, optim, epoch)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.barrier()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    log_dir = get_log_dir("tabular_fit")
    fit(log_dir, epochs=3)
    fit(log_dir, epochs=6, resume_last_run=True)
    if dist.get_rank() == 0:
        print("finished", log_dir, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
