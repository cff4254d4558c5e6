"""Fine-tune a small text encoder: first everything, then with the lower part frozen."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class EncoderConfig:
    def __init__(self, vocab=400, dim=48, heads=4, layers=4, labels=3):
        self.vocab = vocab
        self.dim = dim
        self.heads = heads
        self.layers = layers
        self.labels = labels


class Embeddings(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.word = nn.Embedding(cfg.vocab, cfg.dim)
        self.position = nn.Embedding(64, cfg.dim)
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, ids):
        steps = torch.arange(ids.shape[1], device=ids.device)
        return self.norm(self.word(ids) + self.position(steps))


class TextEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embeddings = Embeddings(cfg)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 2 * cfg.dim, dropout=0.0, batch_first=True)
            for _ in range(cfg.layers)
        )
        self.gradient_checkpointing = False

    def gradient_checkpointing_enable(self):
        self.gradient_checkpointing = True

    def forward(self, ids):
        hidden = self.embeddings(ids)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                hidden = checkpoint(layer, hidden, use_reentrant=True)
            else:
                hidden = layer(hidden)
        return hidden


class TopicScorer(nn.Module):
    """Scores the pooled text against fixed topic vectors."""

    def __init__(self, cfg):
        super().__init__()
        self.encoder = TextEncoder(cfg)
        self.register_buffer("topics", F.normalize(torch.randn(cfg.labels, cfg.dim), dim=1))

    def forward(self, ids, labels):
        pooled = F.normalize(self.encoder(ids).mean(1), dim=1)
        logits = 8.0 * pooled @ self.topics.t()
        return F.cross_entropy(logits, labels)


def make_texts(cfg, n, length, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, cfg.labels, (n,), generator=generator)
    ids = torch.randint(0, cfg.vocab // cfg.labels, (n, length), generator=generator)
    return ids + labels[:, None] * (cfg.vocab // cfg.labels), labels


def run_stage(name, model, ids, labels, epochs, lr):
    trainable = [p for p in model.parameters() if p.requires_grad]
    count = sum(p.numel() for p in trainable)
    print(f"{name}: {count} trainable parameters", flush=True)
    optimizer = torch.optim.AdamW(trainable, lr=lr)
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for start in range(0, len(ids), 32):
            loss = model(ids[start:start + 32], labels[start:start + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"{name}: epoch {epoch} loss {total / (len(ids) // 32):.4f}", flush=True)


def freeze_lower(model, n_layers):
    for param in model.encoder.embeddings.parameters():
        param.requires_grad = False
    for layer in model.encoder.layers[:n_layers]:
        for param in layer.parameters():
            param.requires_grad = False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--freeze-layers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()

    torch.manual_seed(21)
    torch.set_num_threads(1)
    cfg = EncoderConfig()
    model = TopicScorer(cfg)
    model.encoder.gradient_checkpointing_enable()
    ids, labels = make_texts(cfg, args.texts, 24, seed=21)
    run_stage("full", model, ids, labels, args.epochs, args.lr)

    freeze_lower(model, args.freeze_layers)
    ids, labels = make_texts(cfg, args.texts, 24, seed=22)
    run_stage("upper", model, ids, labels, args.epochs, args.lr / 5)


if __name__ == "__main__":
    main()
