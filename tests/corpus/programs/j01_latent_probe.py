import torch
import torch.nn as nn
import torch.nn.functional as F


class TokenMixer(nn.Module):
    """Encoder block that writes the pooled summary into the class slot of the sequence."""

    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.summary = nn.Linear(dim, dim)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b * t, d)
        tokens = self.proj(y).view(b, t, d)
        tokens[:, 0].add_(self.summary(tokens[:, 1:].detach().mean(dim=1)))
        return tokens


class Classifier(nn.Module):
    def __init__(self, patches=16, dim=32, classes=5):
        super().__init__()
        self.embed = nn.Linear(48, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.blocks = nn.ModuleList(TokenMixer(dim, 4) for _ in range(3))
        self.head = nn.Linear(dim, classes)

    def forward(self, patches, probe=None):
        x = torch.cat([self.cls.expand(len(patches), -1, -1), self.embed(patches)], dim=1)
        for i, block in enumerate(self.blocks):
            x = block(x)
            if probe is not None:
                probe.watch(f"blocks.{i}", x)
        return self.head(x[:, 0])


class GradientProbe:
    """Records the gradient norm of the activations between the blocks."""

    def __init__(self):
        self.norms = {}

    def watch(self, name, activation):
        activation.register_hook(lambda grad, name=name: self.norms.__setitem__(name, grad.norm().item()))


def train(steps=30, probe_every=10):
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        patches, labels = torch.randn(8, 16, 48), torch.randint(0, 5, (8,))
        probe = GradientProbe() if step % probe_every == 0 else None
        loss = F.cross_entropy(model(patches, probe), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", probe.norms if probe else "", flush=True)


if __name__ == "__main__":
    train()
