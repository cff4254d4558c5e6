import torch
import torch.nn as nn

torch.manual_seed(0)


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x)))


class Mixture(nn.Module):
    """Every token goes to one expert."""

    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, chosen = self.gate(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            here = chosen == i
            if here.any():
                out[here] = expert(flat[here])
        return (out * weight[:, None]).view_as(x)


class Model(nn.Module):
    def __init__(self, words=300, dim=32):
        super().__init__()
        self.emb = nn.Embedding(words, dim)
        self.norm = nn.LayerNorm(dim)
        self.mixture = Mixture(dim, experts=4)
        self.out = nn.Linear(dim, words)

    def forward(self, ids):
        h = self.emb(ids)
        return self.out(h + self.mixture(self.norm(h)))


def train(model, steps, mixed):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        ids = torch.randint(0, 300, (4, 33))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("mixed" if mixed else "full", round(loss.item(), 3), flush=True)


if __name__ == "__main__":
    model = Model()
    train(model, steps=10, mixed=False)
    train(model, steps=10, mixed=True)
