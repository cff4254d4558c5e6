import torch
import torch.nn as nn

torch.manual_seed(0)
MAX_LENGTH = 512


class Embeddings(nn.Module):
    def __init__(self, vocab=2000, dim=64):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(MAX_LENGTH, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids, position_ids):
        return self.norm(self.words(ids) + self.positions(position_ids))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.compile(Embeddings())
        self.ff = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, ids, position_ids):
        h = self.emb(ids, position_ids)
        return (h + self.ff(h)).mean(1)


class Packer:
    """Lays documents one behind the other, so that no padding is needed."""

    def __init__(self, length):
        self.length = length

    def pack(self, documents):
        ids = torch.cat(documents)[: self.length]
        steps = torch.ones_like(ids)
        return ids[None], (steps.cumsum(0) - 1)[None]


def documents(count, longest):
    return [torch.randint(0, 2000, (int(n),)) for n in torch.randint(20, longest, (count,))]


@torch.no_grad()
def embed(model, packer, batches):
    for name, docs in batches.items():
        ids, position_ids = packer.pack(docs)
        out = model(ids, position_ids)
        print(name, tuple(ids.shape), round(out.norm().item(), 3), flush=True)


if __name__ == "__main__":
    model = Encoder().eval()
    packer = Packer(length=4096)
    embed(model, packer, {"abstracts": documents(80, 300), "titles": documents(80, 60)})
