import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchEncoder(nn.Module):
    def __init__(self, in_dim, dim, tokens):
        super().__init__()
        self.proj = nn.Linear(in_dim, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, tokens, dim) * 0.02)
        self.block = nn.TransformerEncoderLayer(dim, 4, 192, dropout=0.0, batch_first=True)

    def forward(self, patches):
        x = self.proj(patches)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.block(x)


class PrototypeHead(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.linear = nn.Linear(dim, classes)
        self.register_buffer("prototypes", torch.zeros(classes, dim))

    def forward(self, emb):
        return self.linear(emb)

    @torch.no_grad()
    def update(self, emb, labels, momentum=0.5):
        emb = F.normalize(emb, dim=-1)
        for c in labels.unique().tolist():
            centre = emb[labels == c].mean(0)
            self.prototypes[c].mul_(momentum).add_(centre, alpha=1 - momentum)

    def nearest(self, emb):
        return (F.normalize(emb, dim=-1) @ self.prototypes.t()).argmax(-1)
