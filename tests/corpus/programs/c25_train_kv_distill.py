"""Two-rank FSDP2 training of a small transformer with a key/value matching loss.

torchrun --nproc-per-node 2 c25_train_kv_distill.py
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        self.kv_cache = None

    def split(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        self.kv_cache = (k, v)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.mlp(x)


class Student(nn.Module):
    def __init__(self, vocab=200, dim=64, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def kv_loss(model):
    terms = []
    for layer in model.layers:
        k, v = layer.attn.kv_cache
        terms.append(k.pow(2).mean() + v.pow(2).mean())
    return torch.stack(terms).mean()


def train(steps=20, warmup=3):
    torch.manual_seed(0)
    model = Student()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        ids = torch.randint(0, 200, (4, 17))
        logits = model(ids[:, :-1])
        if step < warmup:
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        else:
            loss = kv_loss(model)
        loss.backward()
        optim.step()
        optim.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
