import os

import torch
import torch.distributed as dist

from p74_lib.data import ClickLog, popularity_tiers, shard_loader
from p74_lib.model import ClickModel
from p74_lib.train import evaluate, run_stage
from p74_lib.utils import log0, share_from_main

N_ITEMS, N_USERS, N_TIERS = 4000, 800, 12


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(31)

    train_log = ClickLog(N_USERS, N_ITEMS, n=12000, seed=7)
    valid_log = ClickLog(N_USERS, N_ITEMS, n=3000, seed=8)
    train_loader, sampler = shard_loader(train_log, rank, world, batch_size=128)
    valid_loader, _ = shard_loader(valid_log, rank, world, batch_size=256)

    tiers = popularity_tiers(train_log, N_ITEMS, N_TIERS) if rank == 0 else None
    tiers = share_from_main(tiers, (N_ITEMS,), torch.int64)
    log0(f"world {world} items {N_ITEMS} tiers {N_TIERS} batches {len(train_loader)}")

    model = ClickModel(N_USERS, N_ITEMS, N_TIERS, tiers, dim=16)
    ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        loss = run_stage(ddp, train_loader, lr=5e-3, use_tiers=False)
        log0(f"base epoch {epoch} loss {loss:.4f}")
    log0(f"base valid logloss {evaluate(model, valid_loader, use_tiers=False):.4f}")

    for epoch in range(2, 4):
        sampler.set_epoch(epoch)
        loss = run_stage(ddp, train_loader, lr=1e-3, use_tiers=True)
        log0(f"tiered epoch {epoch} loss {loss:.4f}")
    log0(f"tiered valid logloss {evaluate(model, valid_loader, use_tiers=True):.4f}")

    if rank == 0:
        torch.save(model.state_dict(), "/tmp/p74_click.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
