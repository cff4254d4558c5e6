"""Score and prune attention heads of a small text encoder, then measure latency."""
import argparse
import time

import torch
import torch.nn as nn


class TextEncoder(nn.Module):
    def __init__(self, vocab=2000, dim=64, heads=4, depth=3, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        h = self.encoder(self.embed(tokens))
        return self.head(h.mean(1))


def head_importance(model, batches):
    """|d loss / d in_proj| summed per head, averaged over the batches."""
    loss_fn = nn.CrossEntropyLoss()
    scores = [torch.zeros(l.self_attn.num_heads) for l in model.encoder.layers]
    for tokens, target in batches:
        model.zero_grad()
        loss_fn(model(tokens), target).backward()
        for s, layer in zip(scores, model.encoder.layers):
            g = layer.self_attn.in_proj_weight.grad.abs()
            q, k, v = g.chunk(3)
            s += (q + k + v).view(len(s), -1).sum(1)
    return [s / len(batches) for s in scores]


def prune_heads(model, scores, budget):
    """Keep the best `budget` heads of the whole network; the others are dropped layer by layer."""
    flat = torch.cat(scores)
    threshold = flat.topk(budget).values.min()
    for s, layer in zip(scores, model.encoder.layers):
        attn = layer.self_attn
        keep = s >= threshold
        mask = keep.repeat_interleave(attn.head_dim).repeat(3)
        with torch.no_grad():
            attn.in_proj_weight.mul_(mask[:, None])
            attn.in_proj_bias.mul_(mask)
        kept = int(keep.sum())
        while attn.embed_dim % max(kept, 1):
            kept += 1
        attn.num_heads = kept
        print("kept", kept, "heads")


def benchmark(model, tokens, rounds=10):
    model.eval()
    with torch.inference_mode():
        start = time.perf_counter()
        for _ in range(rounds):
            out = model(tokens)
    return out, (time.perf_counter() - start) / rounds


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--budget", type=int, default=4)
    args = p.parse_args()
    torch.manual_seed(0)
    model = TextEncoder()
    with torch.no_grad():
        model.encoder.layers[1].self_attn.out_proj.weight.mul_(1e-3)
    batches = [(torch.randint(1, 2000, (8, 20)), torch.randint(0, 5, (8,))) for _ in range(4)]
    _, before = benchmark(model, batches[0][0])
    model.train()
    prune_heads(model, head_importance(model, batches), args.budget)
    out, after = benchmark(model, batches[0][0])
    print(f"latency {before * 1e3:.2f} ms -> {after * 1e3:.2f} ms, logits {out[0].tolist()}")


if __name__ == "__main__":
    main()
