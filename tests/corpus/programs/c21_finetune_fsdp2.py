"""Fine-tune a small decoder with fully_shard and track how far the weights drift.

torchrun --nproc-per-node 2 c21_finetune_fsdp2.py
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

VOCAB, DIM, LAYERS, STEPS = 500, 128, 2, 6


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList([Block(DIM) for _ in range(LAYERS)])
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class WeightMonitor:
    """Remembers the projection weights of every block and reports their norm."""

    def __init__(self, model, every=2):
        self.every = every
        self.weights = {}
        for i, block in enumerate(model.blocks):
            block.up.register_forward_hook(self._make_hook(f"blocks.{i}.up"))

    def _make_hook(self, name):
        def hook(module, args, output):
            self.weights[name] = module.weight
        return hook

    @torch.no_grad()
    def report(self, step):
        if step % self.every == 0:
            norms = {name: w.norm().item() for name, w in self.weights.items()}
            if dist.get_rank() == 0:
                print(f"step {step} weight norms {norms}", flush=True)


def get_batch(step, rank):
    gen = torch.Generator().manual_seed(1000 * rank + step)
    tokens = torch.randint(0, VOCAB, (4, 33), generator=gen)
    return tokens[:, :-1], tokens[:, 1:]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Decoder()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    monitor = WeightMonitor(model)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-4)

    for step in range(1, STEPS + 1):
        inputs, labels = get_batch(step, dist.get_rank())
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optim.step()
        optim.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        monitor.report(step)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
