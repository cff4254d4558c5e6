"""Fine-tune a small vision-language model on the mixed document corpus with FSDP2."""
import argparse
import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB = 320
PATCH_DIM = 48


class VisionTower(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.patch = nn.Linear(PATCH_DIM, hidden)
        self.proj = nn.Linear(hidden, dim)

    def forward(self, pixel_values):
        return self.proj(F.gelu(self.patch(pixel_values))).mean(dim=1)


class DecoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.mix(self.norm(x))[0]
        return x + self.mlp(x)


class VisionLanguageModel(nn.Module):
    def __init__(self, dim=64, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.visual = VisionTower(dim, hidden=256)
        self.layers = nn.ModuleList(DecoderLayer(dim) for _ in range(layers))
        self.lm_head = nn.Linear(dim, VOCAB)

    def forward(self, input_ids, pixel_values=None, image_rows=None):
        hidden = self.embed(input_ids)
        if pixel_values is not None:
            features = self.visual(pixel_values)
            prefix = torch.zeros_like(hidden[:, 0]).index_copy(0, image_rows, features)
            hidden = hidden + prefix.unsqueeze(1)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.lm_head(hidden)


class MixedDocuments(Dataset):
    """Pages with a scan and plain chat turns, in the order of the manifest."""

    def __init__(self, size, seed, length=24):
        rng = random.Random(seed)
        self.kinds = ["page" if rng.random() < 0.8 else "chat" for _ in range(size)]
        gen = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCAB, (size, length + 1), generator=gen)
        self.scans = torch.randn(size, 9, PATCH_DIM, generator=gen)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        scan = self.scans[index] if self.kinds[index] == "page" else None
        return {"tokens": self.tokens[index], "scan": scan}


def collate(items):
    tokens = torch.stack([item["tokens"] for item in items])
    batch = {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}
    rows = [i for i, item in enumerate(items) if item["scan"] is not None]
    if rows:
        batch["image_rows"] = torch.tensor(rows)
        batch["pixel_values"] = torch.stack([items[i]["scan"] for i in rows])
    return batch


def build_model():
    torch.manual_seed(0)
    model = VisionLanguageModel()
    fully_shard(model.visual)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


def train(args):
    rank = dist.get_rank()
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    data = MixedDocuments(args.documents, args.seed)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, collate_fn=collate)
    for step, batch in enumerate(loader):
        logits = model(batch["input_ids"], batch.get("pixel_values"), batch.get("image_rows"))
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train(args)
    if int(os.environ["RANK"]) == 0:
        print("fine-tuning done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
