import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    vocab_size = 96
    block_size = 64
    n_embd = 128
    n_head = 4
    n_layer = 2


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.ln1, self.ln2 = nn.LayerNorm(cfg.n_embd), nn.LayerNorm(cfg.n_embd)
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd)
        self.mlp = nn.Sequential(nn.Linear(cfg.n_embd, 4 * cfg.n_embd), nn.GELU(), nn.Linear(4 * cfg.n_embd, cfg.n_embd))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.n_head, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.head = nn.Linear(cfg.n_embd, cfg.vocab_size)

    def forward(self, idx, pos):
        x = self.wte(idx) + self.wpe(pos)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@torch.no_grad()
def score_documents(model, docs, window=64, stride=32):
    total = 0.0
    for start in range(0, docs.size(1) - window + 1, stride):
        chunk = docs[:, start:start + window]
        pos = torch.arange(start, start + window).expand_as(chunk)
        logits = model(chunk, pos)
        nll = F.cross_entropy(logits[:, :-1].flatten(0, 1), chunk[:, 1:].flatten())
        total += nll.item()
        print(f"window at {start}: nll {nll.item():.3f}", flush=True)
    return total


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(2)
    model = torch.compile(GPT(Config()).eval())
    documents = torch.randint(0, Config.vocab_size, (64, 256))
    print("total", score_documents(model, documents))
