"""Two-stage training of a small LM: pretrain, save, then resume with the same checkpoint."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab=40000, dim=64):
        super().__init__()
        self.norm_in = nn.LayerNorm(dim)
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.norm_out = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h, _ = self.mix(self.norm_in(self.embed(ids)))
        return self.head(self.norm_out(h))


def separate_weight_decayable_params(params):
    wd, no_wd = [], []
    for p in params:
        (no_wd if p.ndim < 2 else wd).append(p)
    return wd, no_wd


def get_optimizer(params, lr=3e-4, wd=0.0):
    params = [p for p in params if p.requires_grad]
    if wd > 0:
        wd_params, no_wd_params = separate_weight_decayable_params(params)
        params = wd_params + no_wd_params
    return torch.optim.AdamW(params, lr=lr, weight_decay=wd, fused=True)


class Trainer:
    def __init__(self, wd):
        self.model = TinyLM()
        self.optim = get_optimizer(self.model.parameters(), wd=wd)
        self.step_count = 0

    def train_steps(self, n):
        for _ in range(n):
            ids = torch.randint(0, self.model.embed.num_embeddings, (4, 17))
            logits = self.model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            self.optim.zero_grad(set_to_none=True)
            loss.backward()
            self.optim.step()
            self.step_count += 1
            print(f"step {self.step_count} loss {loss.item():.3f}", flush=True)

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optim": self.optim.state_dict(), "step": self.step_count}, path)

    def load(self, path):
        pkg = torch.load(path)
        self.model.load_state_dict(pkg["model"])
        self.optim.load_state_dict(pkg["optim"])
        self.step_count = pkg["step"]


def main():
    torch.manual_seed(0)
    path = os.path.join(tempfile.mkdtemp(), "prior.pt")
    first = Trainer(wd=0.01)
    first.train_steps(3)
    first.save(path)
    print("saved", flush=True)
    second = Trainer(wd=0.0)
    second.load(path)
    print("resumed at step", second.step_count, flush=True)
    second.train_steps(3)


if __name__ == "__main__":
    main()
