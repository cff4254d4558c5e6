"""Fine-tune a small decoder with FSDP2 and keep the best checkpoint."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Decoder(nn.Module):
    def __init__(self, vocab=128, dim=64, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def save_checkpoint(model, path, step, rank):
    if rank == 0:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(model, options=options)
        torch.save({"model": state, "step": step}, path)
        print(f"saved {path}", flush=True)
    dist.barrier()


def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten())
                  for b in batches]
    model.train()
    loss = torch.stack(losses).mean()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,))
    model = Decoder()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    torch.manual_seed(1 + rank)
    valid = [torch.randint(0, 128, (8, 33)) for _ in range(2)]
    path = os.path.join(tempfile.gettempdir(), "decoder-best.pt")
    best = float("inf")
    for step in range(1, 41):
        ids = torch.randint(0, 128, (8, 33))
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            val = evaluate(model, valid)
            if rank == 0:
                print(f"step {step} val {val:.4f}", flush=True)
            if val < best:
                best = val
                save_checkpoint(model, path, step, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
