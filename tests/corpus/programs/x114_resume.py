"""Adapter fine-tuning recipe: short warm-up stage, then a resumed stage from the recipe state."""
import argparse
import pathlib
import shutil

import torch
import torch.nn as nn


class LoRALinear(nn.Module):
    def __init__(self, dim_in, dim_out, rank):
        super().__init__()
        self.base = nn.Linear(dim_in, dim_out)
        self.base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, dim_in) * 0.02)
        self.lora_b = nn.Parameter(torch.zeros(dim_out, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_a.T) @ self.lora_b.T


class Block(nn.Module):
    def __init__(self, dim, rank):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = LoRALinear(dim, 2 * dim, rank)
        self.down = LoRALinear(2 * dim, dim, rank)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Checkpointer:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def recipe_file(self):
        return self.folder / "recipe_state.pt"

    def load(self):
        return torch.load(self.recipe_file, map_location="cpu", mmap=True, weights_only=True)

    def save(self, state):
        torch.save(state, self.recipe_file)
        size = self.recipe_file.stat().st_size / 2**20
        print(f"recipe state saved, {size:.1f} MiB", flush=True)


class Recipe:
    def __init__(self, args, checkpointer):
        torch.manual_seed(args.seed)
        self.args = args
        self.ckpt = checkpointer
        self.model = nn.Sequential(*[Block(args.dim, args.rank) for _ in range(args.layers)])
        params = [p for p in self.model.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(params, lr=3e-4)
        self.epoch = 0

    def adapter_state(self):
        return {k: v for k, v in self.model.state_dict().items() if "lora_" in k or "norm" in k}

    def resume(self):
        state = self.ckpt.load()
        self.model.load_state_dict(state["adapter"], strict=False)
        self.opt.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]
        print(f"resumed at epoch {self.epoch}", flush=True)

    def train_epoch(self):
        for step in range(self.args.steps):
            x = torch.randn(16, self.args.dim)
            loss = nn.functional.mse_loss(self.model(x), torch.roll(x, 1, dims=1))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        self.epoch += 1
        print(f"epoch {self.epoch} loss {loss.item():.4f}", flush=True)

    def save(self):
        self.ckpt.save({
            "adapter": self.adapter_state(),
            "optimizer": self.opt.state_dict(),
            "epoch": self.epoch,
        })


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out-dir", default="lora_out")
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--rank", type=int, default=32)
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    shutil.rmtree(args.out_dir, ignore_errors=True)
    first = Recipe(args, Checkpointer(args.out_dir))
    first.train_epoch()
    first.save()

    second = Recipe(args, Checkpointer(args.out_dir))
    second.resume()
    for _ in range(2):
        second.train_epoch()
        second.save()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
