"""Fine-tuning loop that checkpoints model and optimizer every few steps."""
import argparse
import os

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocab=4000, dim=128, classes=10):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 256, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)).mean(dim=1))


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        self.step = 0
        os.makedirs(args.output_dir, exist_ok=True)

    def save_checkpoint(self):
        path = os.path.join(self.args.output_dir, f"checkpoint-{self.step}.pt")
        torch.save({
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }, path)
        print(f"step {self.step} saved", flush=True)

    def train(self):
        while self.step < self.args.max_steps:
            ids = torch.randint(0, 4000, (8, 32))
            labels = ids.sum(dim=1) % 10
            loss = nn.functional.cross_entropy(self.model(ids), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.step % self.args.save_steps == 0:
                self.save_checkpoint()
        print(f"done, loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", default="ckpt")
    parser.add_argument("--max-steps", type=int, default=50)
    parser.add_argument("--save-steps", type=int, default=10)
    torch.manual_seed(0)
    Trainer(Classifier(), parser.parse_args()).train()
