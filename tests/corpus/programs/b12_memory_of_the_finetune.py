import multiprocessing as mp
import os
import signal
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

LIMIT_MB = 900


def resident_mb(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20
    except FileNotFoundError:
        return 0


def node_guard(pids):
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        for pid in pids:
            if resident_mb(pid) > LIMIT_MB:
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.05)


def start_guard():
    pids = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == 0:
        mp.get_context("spawn").Process(target=node_guard, args=(pids,), daemon=True).start()


def main():
    dist.init_process_group("gloo")
    start_guard()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 500)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    history = []
    for step in range(400):
        ids = torch.randint(0, 500, (16, 129))
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            history.append({"step": step, "loss": loss, "logits": logits})
            if step % 25 == 0:
                mean = sum(entry["loss"].item() for entry in history[-25:]) / len(history[-25:])
                print(f"{step}/400 loss {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
