"""Fine-tune a small text classifier and go on from the last recipe state, as in our nightly job."""
import argparse
import os
import time

import torch
from torch import nn


class TextClassifier(nn.Module):
    def __init__(self, vocab=9000, dim=96, classes=6):
        super().__init__()
        self.tok = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.ff = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU())
        self.out = nn.Linear(256, classes)

    def forward(self, tokens):
        return self.out(self.ff(self.tok(tokens)))


class Checkpointer:
    def __init__(self, out_dir):
        self.out_dir = out_dir
        os.makedirs(out_dir, exist_ok=True)
        self.state_path = os.path.join(out_dir, "recipe_state.pt")
        self.model_path = os.path.join(out_dir, "model_0.pt")

    def load(self, path):
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)

    def save(self, model, optimizer, epoch, seed):
        torch.save(model.state_dict(), os.path.join(self.out_dir, f"model_{epoch}.pt"))
        state = {"optimizer": optimizer.state_dict(), "epochs_run": epoch + 1, "seed": seed}
        torch.save(state, self.state_path)
        size = os.path.getsize(self.state_path) / 2**20
        print(f"  recipe state of size {size:.2f} MB saved to {self.state_path}", flush=True)


class FinetuneRecipe:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        torch.set_num_threads(1)
        self.args = args
        self.ckpt = Checkpointer(args.output_dir)
        self.model = TextClassifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.epochs_run = 0

    def setup(self, resume):
        if not resume:
            return
        state = self.ckpt.load(self.ckpt.state_path)
        weights = self.ckpt.load(os.path.join(self.args.output_dir, f"model_{state['epochs_run'] - 1}.pt"))
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_run = state["epochs_run"]
        print(f"resumed at epoch {self.epochs_run}", flush=True)

    def batches(self, epoch):
        g = torch.Generator().manual_seed(self.args.seed + epoch)
        for _ in range(self.args.steps):
            tokens = torch.randint(0, 9000, (32, 48), generator=g)
            yield tokens, tokens[:, 0] % 6

    def train(self, until):
        loss_fn = nn.CrossEntropyLoss()
        for epoch in range(self.epochs_run, until):
            t0, total = time.time(), 0.0
            for tokens, labels in self.batches(epoch):
                self.optimizer.zero_grad(set_to_none=True)
                loss = loss_fn(self.model(tokens), labels)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / self.args.steps:.4f} ({time.time() - t0:.1f}s)", flush=True)
            self.ckpt.save(self.model, self.optimizer, epoch, self.args.seed)
            self.epochs_run = epoch + 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--output-dir", default="finetune_out")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--first-session", type=int, default=1, help="epochs of the first session")
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()

    recipe = FinetuneRecipe(args)
    recipe.setup(resume=False)
    recipe.train(until=args.first_session)
    del recipe

    recipe = FinetuneRecipe(args)
    recipe.setup(resume=True)
    recipe.train(until=args.epochs)
    print("finished", recipe.epochs_run, "epochs")


if __name__ == "__main__":
    main()
