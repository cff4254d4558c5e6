"""Perplexity evaluation of a small decoder language model from sharded weight files."""
import json
import math
import mmap
import os
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = "/tmp/o33_eval_lm"
CODES = {"F32": torch.float32, "I64": torch.int64}
NAMES = {v: k for k, v in CODES.items()}


def write_shard(path, tensors):
    header, offset, blobs = {}, 0, []
    for name, t in tensors.items():
        raw = t.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "offsets": [offset, offset + len(raw)]}
        blobs.append(raw)
        offset += len(raw)
    head = json.dumps(header).encode()
    head += b" " * (-(len(head) + 8) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)))
        f.write(head)
        for raw in blobs:
            f.write(raw)


def read_shard(path):
    out = {}
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as buf:
        size = struct.unpack("<Q", buf[:8])[0]
        header = json.loads(buf[8:8 + size])
        for name, info in header.items():
            dtype = CODES[info["dtype"]]
            begin, end = info["offsets"]
            count = (end - begin) // torch.empty(0, dtype=dtype).element_size()
            flat = torch.frombuffer(buf, dtype=dtype, count=count, offset=8 + size + begin)
            out[name] = flat.view(info["shape"])
            if not torch.isfinite(flat[:16].float()).all():
                raise ValueError(f"{path}: {name} is damaged")
    return out


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, vocab=24000, dim=512, layers=6, heads=8, ctx=128):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(ctx, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def export(model, shard_bytes=64 << 20):
    os.makedirs(ROOT, exist_ok=True)
    shards, size = [{}], 0
    for name, t in model.state_dict().items():
        nbytes = t.numel() * t.element_size()
        if shards[-1] and size + nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = t
        size += nbytes
    index = {}
    for i, shard in enumerate(shards):
        fname = f"model-{i + 1:05d}-of-{len(shards):05d}.bin"
        write_shard(os.path.join(ROOT, fname), shard)
        index.update({name: fname for name in shard})
    with open(os.path.join(ROOT, "index.json"), "w") as f:
        json.dump(index, f)
    return len(shards)


def load(fast=True):
    with open(os.path.join(ROOT, "index.json")) as f:
        index = json.load(f)
    with torch.device("meta" if fast else "cpu"):
        model = LM()
    for fname in sorted(set(index.values())):
        state = read_shard(os.path.join(ROOT, fname))
        missing, unexpected = model.load_state_dict(state, strict=False, assign=fast)
        assert not unexpected
        print(f"{fname}: {len(state)} tensors", flush=True)
    return model.eval()


@torch.inference_mode()
def perplexity(model, batches):
    total, count = 0.0, 0
    for ids in batches:
        logits = model(ids[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").item()
        count += ids[:, 1:].numel()
    return math.exp(total / count)


def main():
    torch.manual_seed(0)
    batches = [torch.randint(0, 24000, (2, 65)) for _ in range(3)]
    model = LM()
    print(f"reference perplexity {perplexity(model.eval(), batches):.1f}", flush=True)
    print(f"exported {export(model)} shards", flush=True)
    del model
    model = load()
    n = sum(p.numel() for p in model.parameters())
    print(f"loaded {n / 1e6:.1f}M parameters, all materialised: {not any(p.is_meta for p in model.parameters())}", flush=True)
    print(f"restored perplexity {perplexity(model, batches):.1f}", flush=True)


if __name__ == "__main__":
    main()
