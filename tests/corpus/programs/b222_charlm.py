import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCAB, CONTEXT = 96, 64


def orthogonalize(G, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.bfloat16()
    transposed = G.size(-2) > G.size(-1)
    if transposed:
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.mT if transposed else X


def normuon_update(grad, momentum, second_momentum, beta, beta2):
    momentum.lerp_(grad, 1 - beta)
    update = grad.lerp_(momentum, beta)
    update = orthogonalize(update)
    norm = update.norm(dim=(-2, -1), keepdim=True)
    row_mean = torch.mean(update * update, dim=-1, keepdim=True)
    second_momentum.lerp_(row_mean, 1 - beta2)
    update = update / second_momentum.sqrt().add(1e-10)
    update = update * (norm / update.norm(dim=(-2, -1), keepdim=True).add(1e-10))
    return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5


class NorMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0.0, momentum=0.95, beta2=0.95):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, beta2=beta2))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                    state["second_momentum_buffer"] = torch.zeros_like(p[..., 0:1])
                update = normuon_update(p.grad, state["momentum_buffer"], state["second_momentum_buffer"],
                                        group["momentum"], group["beta2"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])


class TextWindows(Dataset):
    def __init__(self, length, seed):
        rng = np.random.default_rng(seed)
        table = rng.dirichlet(np.full(VOCAB, 0.05), size=VOCAB).cumsum(axis=1)
        ids = np.zeros(length, dtype=np.int64)
        for i, u in enumerate(rng.random(length - 1)):
            ids[i + 1] = min(int(np.searchsorted(table[ids[i]], u)), VOCAB - 1)
        self.ids = torch.from_numpy(ids)

    def __len__(self):
        return (len(self.ids) - 1) // CONTEXT

    def __getitem__(self, i):
        chunk = self.ids[i * CONTEXT:(i + 1) * CONTEXT + 1]
        return chunk[:-1], chunk[1:]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharLM(nn.Module):
    def __init__(self, dim=96, depth=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Embedding(CONTEXT, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch_loss(model, ids, targets):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [batch_loss(model, ids, targets).item() for ids, targets in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(1337)
    train_loader = DataLoader(TextWindows(40_000, seed=1), batch_size=16, shuffle=True)
    val_loader = DataLoader(TextWindows(8_000, seed=2), batch_size=16)
    model = CharLM()
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = [NorMuon(matrices, lr=0.02, weight_decay=0.01), torch.optim.AdamW(others, lr=3e-4)]
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {len(matrices)} matrices for NorMuon")
    print(f"initial val loss {evaluate(model, val_loader):.4f} (uniform: {math.log(VOCAB):.4f})", flush=True)
    for epoch in range(2):
        started = time.time()
        for step, (ids, targets) in enumerate(train_loader):
            loss = batch_loss(model, ids, targets)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} val loss {evaluate(model, val_loader):.4f} ({time.time() - started:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
