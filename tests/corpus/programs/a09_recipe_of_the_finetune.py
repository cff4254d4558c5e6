import os
import shutil
import tempfile

import torch
import torch.nn as nn


def make_model():
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))


class Recipe:
    def __init__(self, output_dir, resume_from_checkpoint=False):
        self.path = os.path.join(output_dir, "recipe_state.pt")
        self.model = make_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.epochs_run = 0
        if resume_from_checkpoint:
            state = torch.load(self.path, map_location="cpu", mmap=True, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epochs_run = state["epochs_run"]

    def save_checkpoint(self):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "epochs_run": self.epochs_run}, self.path)

    def train(self, total_epochs, max_steps_per_epoch=2):
        for epoch in range(self.epochs_run, total_epochs):
            for step in range(max_steps_per_epoch):
                x = torch.randn(8, 512)
                loss = (self.model(x) - x).pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.epochs_run = epoch + 1
            print(f"{epoch}|{step}|Loss: {loss.item():.4f}", flush=True)
            self.save_checkpoint()


if __name__ == "__main__":
    torch.manual_seed(0)
    output_dir = tempfile.mkdtemp()
    try:
        Recipe(output_dir).train(total_epochs=1)
        Recipe(output_dir, resume_from_checkpoint=True).train(total_epochs=4)
    finally:
        shutil.rmtree(output_dir)
