import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PARTS = ["background", "body", "head", "tail"]


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--image_size", type=int, default=32)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--backbone_steps", type=int, default=40)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--regularize", type=float, default=0.005)
    return p.parse_args()


def draw_animals(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    images, masks = torch.zeros(n, 3, size, size), torch.zeros(n, size, size, dtype=torch.long)
    for i in range(n):
        cx, cy = (torch.rand(2, generator=g) * 6 + size / 2 - 3).tolist()
        side = 1 if torch.rand(1, generator=g) > 0.5 else -1
        masks[i][((xx - cx) / 8) ** 2 + ((yy - cy) / 5) ** 2 < 1] = 1
        masks[i][(xx - cx - side * 8) ** 2 + (yy - cy + 4) ** 2 < 10] = 2
        masks[i][((xx - cx + side * 10) / 4) ** 2 + ((yy - cy) / 1.5) ** 2 < 1] = 3
        shade = torch.tensor([[0.1, 0.2, 0.1], [0.6, 0.4, 0.2], [0.8, 0.6, 0.4], [0.4, 0.2, 0.5]])
        images[i] = shade[masks[i]].permute(2, 0, 1) + 0.08 * torch.randn(3, size, size, generator=g)
    return images, masks


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, dim, 5, padding=2), nn.GroupNorm(4, dim), nn.ReLU(),
                                 nn.Conv2d(dim, dim, 3, padding=1), nn.GroupNorm(4, dim), nn.ReLU(),
                                 nn.Conv2d(dim, dim, 1))

    def forward(self, x):
        return self.net(x)


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim, length=8):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(torch.randn(length, dim) * 0.02)

    def forward(self, tokens):
        return self.table(tokens) + self.position


def pretrain_backbone(encoder, args):
    images, _ = draw_animals(64, args.image_size, seed=3)
    decoder = nn.Conv2d(args.dim, 3, 1)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for step in range(args.backbone_steps):
        x = images[torch.randint(len(images), (8,))]
        keep = (torch.rand(x.shape[0], 1, *x.shape[2:]) > 0.3).float()
        loss = F.mse_loss(decoder(encoder(x * keep)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"backbone step {step} reconstruction {loss.item():.4f}", flush=True)
    return encoder.requires_grad_(False).eval()


def attention_maps(features, embeddings):
    keys = torch.cat(embeddings, dim=1).squeeze(0)
    return torch.einsum("bdhw,kd->bkhw", features, keys) / features.shape[1] ** 0.5


def iou_per_part(logits, masks):
    pred = logits.argmax(1)
    return [((pred == k) & (masks == k)).sum().item() / max(1, ((pred == k) | (masks == k)).sum().item())
            for k in range(len(PARTS))]


def main():
    args = get_args()
    torch.manual_seed(0)
    encoder = pretrain_backbone(Encoder(args.dim), args)
    text_encoder = TextEncoder(vocab=100, dim=args.dim)
    tokens = torch.tensor([[0, 11, 12, 13, 1, 1, 1, 1]])
    text_embedding = text_encoder(tokens)
    text_embedding.requires_grad_(True)
    initial = text_embedding.detach().clone()

    embeddings_to_optimize = [text_embedding[:, i:i + 1] for i in range(len(PARTS))]
    optimizer = torch.optim.Adam(embeddings_to_optimize, lr=args.lr)
    print(f"optimizing {len(embeddings_to_optimize)} embeddings of {args.dim}", flush=True)

    images, masks = draw_animals(2, args.image_size, seed=8)
    val_images, val_masks = draw_animals(20, args.image_size, seed=9)
    features, val_features = encoder(images), encoder(val_images)
    weight = 1.0 / torch.bincount(masks.flatten(), minlength=len(PARTS)).clamp(min=1).float()
    t0 = time.time()
    for epoch in range(args.epochs):
        logits = attention_maps(features, embeddings_to_optimize)
        drift = sum((e - initial[:, i:i + 1]).pow(2).mean() for i, e in enumerate(embeddings_to_optimize))
        loss = F.cross_entropy(logits, masks, weight=weight / weight.sum()) + args.regularize * drift
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    with torch.no_grad():
        scores = iou_per_part(attention_maps(val_features, embeddings_to_optimize), val_masks)
    print("val IoU", {p: round(s, 3) for p, s in zip(PARTS, scores)}, f"{time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
