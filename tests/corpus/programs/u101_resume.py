"""Adapter fine-tuning of a small sentence encoder, resumable from a recipe state."""
import argparse
import os
import tempfile

import torch
from torch import nn


class AdapterLinear(nn.Module):
    def __init__(self, in_dim, out_dim, rank):
        super().__init__()
        self.base = nn.Linear(in_dim, out_dim, bias=False)
        self.base.weight.requires_grad_(False)
        self.down = nn.Linear(in_dim, rank, bias=False)
        self.up = nn.Linear(rank, out_dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class SentenceModel(nn.Module):
    def __init__(self, vocab, dim, rank, labels):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(AdapterLinear(dim, dim, rank) for _ in range(4))
        self.head = nn.Linear(dim, labels)

    def forward(self, tokens):
        h = self.embed(tokens).mean(dim=1)
        for layer in self.layers:
            h = torch.relu(layer(h)) + h
        return self.head(h)


class Checkpointer:
    def __init__(self, directory):
        self.directory = directory
        self.recipe_file = os.path.join(directory, "recipe_state.pt")

    def save(self, model, optimizer, epoch):
        adapter = {k: v for k, v in model.state_dict().items() if ".base." not in k}
        torch.save(adapter, os.path.join(self.directory, f"adapter_{epoch}.pt"))
        state = {"epoch": epoch, "optimizer": optimizer.state_dict(), "seed": torch.initial_seed()}
        torch.save(state, self.recipe_file)
        print(f"recipe state of {os.path.getsize(self.recipe_file) / 2**20:.1f} MiB saved", flush=True)

    def load(self, epoch):
        adapter = torch.load(os.path.join(self.directory, f"adapter_{epoch}.pt"))
        state = torch.load(self.recipe_file, map_location="cpu", mmap=True, weights_only=True)
        return adapter, state


class FinetuneRecipe:
    def __init__(self, cfg, checkpointer):
        self.cfg = cfg
        self.checkpointer = checkpointer
        self.epoch = 0

    def setup(self, resume_from=None):
        torch.manual_seed(self.cfg.seed)
        self.model = SentenceModel(self.cfg.vocab, self.cfg.dim, self.cfg.rank, 8)
        params = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(params, lr=3e-4)
        if resume_from is not None:
            adapter, state = self.checkpointer.load(resume_from)
            self.model.load_state_dict(adapter, strict=False)
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch = state["epoch"] + 1
            print(f"resumed after epoch {state['epoch']}", flush=True)

    def batches(self):
        gen = torch.Generator().manual_seed(self.epoch)
        for _ in range(self.cfg.steps):
            tokens = torch.randint(0, self.cfg.vocab, (32, 24), generator=gen)
            yield tokens, tokens.sum(dim=1) % 8

    def train(self, until):
        while self.epoch < until:
            for step, (tokens, target) in enumerate(self.batches()):
                loss = nn.functional.cross_entropy(self.model(tokens), target)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
            print(f"epoch {self.epoch} loss {loss.item():.4f}", flush=True)
            self.checkpointer.save(self.model, self.optimizer, self.epoch)
            self.epoch += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=16000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    cfg = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="finetune_", dir=".") as out:
        checkpointer = Checkpointer(out)
        first = FinetuneRecipe(cfg, checkpointer)
        first.setup()
        first.train(until=2)
        second = FinetuneRecipe(cfg, checkpointer)
        second.setup(resume_from=1)
        second.train(until=cfg.epochs)
    print("done", flush=True)


if __name__ == "__main__":
    main()
