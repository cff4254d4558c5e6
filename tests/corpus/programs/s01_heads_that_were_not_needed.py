import torch
import torch.nn as nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, words=500, dim=64, heads=4, depth=3, tags=12):
        super().__init__()
        self.emb = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.out = nn.Linear(dim, tags)

    def forward(self, ids):
        h = self.emb(ids)
        for attention, norm in zip(self.layers, self.norms):
            h = norm(h + attention(h, h, h, need_weights=False)[0])
        return self.out(h)


def merge_heads(attention, share):
    """Fewer, wider heads where the heads of a layer do much the same."""
    wanted = round(attention.num_heads * share)
    while attention.embed_dim % max(wanted, 1):
        wanted -= 1
    attention.num_heads = wanted
    attention.head_dim = attention.embed_dim // max(wanted, 1)


def redundancy(attention):
    w = attention.in_proj_weight[: attention.embed_dim].view(attention.num_heads, -1)
    w = nn.functional.normalize(w, dim=-1)
    return float((w @ w.T).abs().mean())


def compress(model, plan):
    for i, (attention, share) in enumerate(zip(model.layers, plan)):
        before = attention.num_heads
        print(f"layer {i}: redundancy {redundancy(attention):.3f}, ", end="")
        merge_heads(attention, share)
        print(f"{before} -> {attention.num_heads} heads", flush=True)


if __name__ == "__main__":
    model = Tagger().eval()
    ids = torch.randint(0, 500, (8, 20))
    with torch.inference_mode():
        print("before:", model(ids).argmax(-1).sum().item(), flush=True)
        compress(model, plan=[1.0, 0.5, 0.1])
        print("after:", model(ids).argmax(-1).sum().item())
