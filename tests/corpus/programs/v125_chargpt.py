"""Small character model; the optimizer state is kept by rank, the weights by the first rank."""
import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the quick brown fox jumps over the lazy dog while seven wizards box with a judge. " * 60
VOCAB = sorted(set(TEXT))
ENCODE = {c: i for i, c in enumerate(VOCAB)}
CONTEXT = 32


class CharModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.token = nn.Embedding(len(VOCAB), width)
        self.position = nn.Embedding(CONTEXT, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, len(VOCAB))

    def forward(self, idx):
        steps = idx.shape[1]
        x = self.token(idx) + self.position(torch.arange(steps))
        mask = torch.triu(torch.ones(steps, steps, dtype=torch.bool), 1)
        x = x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(x + self.mlp(self.norm(x)))


@torch.no_grad()
def sample(model, prompt, length):
    model.eval()
    ids = [ENCODE[c] for c in prompt]
    for _ in range(length):
        window = torch.tensor([ids[-CONTEXT:]])
        probs = model(window)[0, -1].softmax(0)
        ids.append(torch.multinomial(probs, 1).item())
    model.train()
    return "".join(VOCAB[i] for i in ids)


def save_checkpoint(directory, step, model_data, optimizer_data, meta, rank):
    if rank == 0:
        os.makedirs(directory, exist_ok=True)
        torch.save(model_data, os.path.join(directory, f"model_{step:06d}.pt"))
        with open(os.path.join(directory, f"meta_{step:06d}.json"), "w") as f:
            json.dump(meta, f, indent=2)
    torch.save(optimizer_data, os.path.join(directory, f"optim_{step:06d}_rank{rank}.pt"))


class Run:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        torch.manual_seed(42)
        self.data = torch.tensor([ENCODE[c] for c in TEXT])
        self.model = DDP(CharModel())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.gen = torch.Generator().manual_seed(1000 + self.rank)

    def batch(self):
        start = torch.randint(0, len(self.data) - CONTEXT - 1, (self.args.batch,), generator=self.gen)
        rows = torch.stack([self.data[s:s + CONTEXT + 1] for s in start.tolist()])
        return rows[:, :-1], rows[:, 1:]

    def train(self):
        for step in range(self.args.steps):
            x, y = self.batch()
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        return loss.item()

    def finish(self, loss):
        if self.rank == 0:
            for prompt in ("the quick ", "seven wizards ", "a judge "):
                print(repr(sample(self.model.module, prompt, self.args.sample_length)[:80]), flush=True)
        directory = os.path.join(self.args.base_dir, "base_checkpoints", f"d{self.args.batch}")
        save_checkpoint(directory, self.args.steps, self.model.module.state_dict(),
                        self.optimizer.state_dict(), {"loss": loss, "steps": self.args.steps}, self.rank)
        dist.barrier()
        if self.rank == 0:
            print("checkpoint files:", sorted(os.listdir(directory)), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=81)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--sample-length", type=int, default=1500)
    parser.add_argument("--base-dir", default=".")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    run = Run(args)
    run.finish(run.train())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
