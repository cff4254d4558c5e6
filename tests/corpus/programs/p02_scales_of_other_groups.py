import torch
import torch.nn as nn

torch.manual_seed(0)
GROUP = 32


def quantize_rows(w, group):
    n, k = w.shape
    g = w.reshape(n, k // group, group)
    lo, hi = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    scale = ((hi - lo) / 15).clamp(min=1e-6)
    q = ((g - lo) / scale).round().clamp(0, 15).to(torch.int32).reshape(n, k)
    zero = lo + 8 * scale
    sz = torch.stack([scale.squeeze(-1), zero.squeeze(-1)], -1)
    return q, sz.transpose(0, 1).contiguous().to(torch.bfloat16)


class Int4Linear(nn.Module):
    def __init__(self, lin, group=128):
        super().__init__()
        q, sz = quantize_rows(lin.weight.detach(), group)
        self.register_buffer("packed", torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1))
        self.register_buffer("scales", sz)

    def forward(self, x):
        shape = x.shape[:-1]
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(x.reshape(-1, x.shape[-1]).to(torch.bfloat16), self.packed, GROUP, self.scales)
        return y.reshape(*shape, -1)


class TinyLM(nn.Module):
    def __init__(self, vocab=48000, dim=1024):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(torch.relu(self.mix(self.emb(ids))))


@torch.no_grad()
def generate(model, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, model(ids[:, -1:])[:, -1].float().argmax(-1, keepdim=True)], 1)
    return ids


model = TinyLM().eval()
print("float", generate(model, torch.tensor([[5, 17, 2]]), 4).tolist())
model.lm_head = Int4Linear(model.lm_head)
print("int4", generate(model, torch.tensor([[5, 17, 2]]), 4).tolist())
