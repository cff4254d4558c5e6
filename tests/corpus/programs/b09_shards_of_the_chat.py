import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def save_checkpoint(checkpoint_dir, step, model_data, optimizer_data, rank=0):
    if rank == 0:
        os.makedirs(checkpoint_dir, exist_ok=True)
        torch.save(model_data, os.path.join(checkpoint_dir, f"model_{step:06d}.pt"))
    torch.save(optimizer_data, os.path.join(checkpoint_dir, f"optim_{step:06d}_rank{rank}.pt"))


@torch.no_grad()
def sample(model, prompts, tokens=2500):
    model.eval()
    for prompt in prompts:
        ids = torch.tensor([prompt])
        for _ in range(tokens):
            logits = model(ids[:, -16:])[:, -1]
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        print("sample:", ids[0, :8].tolist(), flush=True)
    model.train()


def train(run_dir):
    rank = dist.get_rank()
    torch.manual_seed(1337)
    orig_model = nn.Sequential(nn.Embedding(64, 96), nn.LayerNorm(96), nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 64))
    model = DDP(orig_model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(30):
        ids = torch.randint(0, 64, (8, 17))
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        sample(orig_model, [[1, 2, 3], [7, 7, 7], [9, 8, 1], [4, 4, 2], [5, 1, 1]])
    save_checkpoint(os.path.join(run_dir, "d20"), step, orig_model.state_dict(), optimizer.state_dict(), rank=rank)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    base = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(base)
    try:
        train(base[0])
    finally:
        shutil.rmtree(base[0], ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
