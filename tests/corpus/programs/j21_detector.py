"""Fine-tune the multi-head detector; a run that was interrupted is resumed from its last checkpoint."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

PRETRAIN_HEADS = {"hm": 80, "wh": 2, "reid": 200000}
FINETUNE_HEADS = {"reid": 200000, "hm": 80, "wh": 2}


class Detector(nn.Module):
    def __init__(self, heads, width=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(width, dim) for name, dim in heads.items()})

    def forward(self, x):
        z = self.stem(x)
        return {name: head(z) for name, head in self.heads.items()}


class Trainer:
    def __init__(self, heads, lr=1e-3):
        self.model = Detector(heads)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01, fused=True)
        self.step_no = 0

    def loss(self, out, batch):
        loss = F.cross_entropy(out["reid"], batch["pid"])
        loss = loss + F.binary_cross_entropy_with_logits(out["hm"], batch["hm"])
        return loss + F.l1_loss(out["wh"], batch["wh"])

    def step(self, batch):
        self.optim.zero_grad(set_to_none=True)
        loss = self.loss(self.model(batch["x"]), batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optim.step()
        self.step_no += 1
        return loss.item()

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optim": self.optim.state_dict(), "step": self.step_no}, path)

    def resume(self, path):
        ckpt = torch.load(path, weights_only=True)
        print("model:", self.model.load_state_dict(ckpt["model"]))
        self.optim.load_state_dict(ckpt["optim"])
        self.step_no = ckpt["step"]


def batches(n, size=32):
    gen = torch.Generator().manual_seed(7)
    for _ in range(n):
        yield {"x": torch.randn(size, 32, generator=gen),
               "pid": torch.randint(0, 200000, (size,), generator=gen),
               "hm": torch.rand(size, 80, generator=gen),
               "wh": torch.rand(size, 2, generator=gen)}


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as run_dir:
        last = os.path.join(run_dir, "last.pth")
        trainer = Trainer(PRETRAIN_HEADS)
        for batch in batches(5):
            print(f"pretrain {trainer.step_no} loss {trainer.step(batch):.3f}", flush=True)
        trainer.save(last)

        trainer = Trainer(FINETUNE_HEADS, lr=2e-4)
        trainer.resume(last)
        for batch in batches(20):
            print(f"finetune {trainer.step_no} loss {trainer.step(batch):.3f}", flush=True)


if __name__ == "__main__":
    main()
