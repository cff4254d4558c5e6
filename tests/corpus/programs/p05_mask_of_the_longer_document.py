import torch
import torch.nn as nn
import warnings

warnings.filterwarnings("ignore")
torch.manual_seed(1)


def band(queries, keys, width):
    """CSR pattern of a sliding window: every query sees `width` keys around its place."""
    start = (torch.arange(queries) * keys // queries - width // 2).clamp(0, keys - width)
    col = (start[:, None] + torch.arange(width)).reshape(-1)
    crow = torch.arange(0, queries * width + 1, width)
    return crow, col


class SparseAttention(nn.Module):
    def __init__(self, dim, width=16):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.width = width
        self.patterns = {}

    def pattern(self, queries, keys):
        if queries not in self.patterns:
            self.patterns[queries] = band(queries, keys, self.width)
        return self.patterns[queries]

    def forward(self, x, memory):
        q, k, v = self.q(x), self.k(memory), self.v(memory)
        crow, col = self.pattern(len(q), len(k))
        mask = torch.sparse_csr_tensor(crow, col, torch.zeros(len(col)), (len(q), len(k)))
        score = torch.sparse.sampled_addmm(mask, q, k.t().contiguous()).values()
        p = score.reshape(len(q), -1).softmax(-1)
        return torch.einsum("qw,qwd->qd", p, v[col.clamp(max=len(v) - 1)].reshape(len(q), -1, v.shape[-1]))


@torch.no_grad()
def encode(model, documents):
    for name, queries, keys in documents:
        out = model(torch.randn(queries, 64), torch.randn(keys, 64))
        print(name, tuple(out.shape), round(float(out.norm()), 3), flush=True)


encode(SparseAttention(64), [("report", 2048, 400000), ("letter", 512, 2048), ("note", 2048, 1024)])
