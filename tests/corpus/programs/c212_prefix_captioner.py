"""Caption decoder on pre-extracted image features, trained with torchrun."""
import argparse
import logging
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger("captioner")


class FeatureCaptionDataset(Dataset):
    def __init__(self, n, feat_dim, vocab, max_len, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.features = torch.randn(n, feat_dim, generator=g)
        self.captions = torch.randint(4, vocab, (n, max_len), generator=g)
        lengths = torch.randint(max_len // 2, max_len + 1, (n,), generator=g)
        for row, length in enumerate(lengths.tolist()):
            self.captions[row, length:] = 0

    def __len__(self):
        return len(self.features)

    def __getitem__(self, i):
        return self.features[i], self.captions[i]


class DecoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class PrefixCaptioner(nn.Module):
    def __init__(self, feat_dim, dim, vocab, max_len, prefix_len, layers=3, heads=4):
        super().__init__()
        self.prefix_len = prefix_len
        self.time_embed = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.token_embed = nn.Embedding(vocab, dim)
        self.pos_embed = nn.Parameter(torch.zeros(1, prefix_len + max_len, dim))
        self.clip_project = nn.Linear(feat_dim, prefix_len * dim)
        self.blocks = nn.ModuleList([DecoderBlock(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, features, tokens):
        prefix = self.clip_project(features).view(len(features), self.prefix_len, -1)
        x = torch.cat([prefix, self.token_embed(tokens)], dim=1)
        x = x + self.pos_embed[:, : x.size(1)]
        mask = torch.full((x.size(1), x.size(1)), -math.inf).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.lm_head(self.norm(x[:, self.prefix_len:]))


def caption_loss(logits, captions):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), captions[:, 1:].flatten(), ignore_index=0)


def train(model, loader, sampler, optimizer, scheduler, epochs, rank):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for step, (features, captions) in enumerate(loader):
            logits = model(features, captions)
            loss = caption_loss(logits, captions)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item()
            if rank == 0 and (step + 1) % 10 == 0:
                logger.info("epoch %d iter %d loss %.4f", epoch, step + 1, running / (step + 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--bs", type=int, default=16)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--prefix_length", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2023)

    dataset = FeatureCaptionDataset(960, 128, 800, 20)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.bs, sampler=sampler, drop_last=True)
    model = PrefixCaptioner(128, args.dim, 800, 20, args.prefix_length)
    if rank == 0:
        logger.info("%.2fM parameters", sum(p.numel() for p in model.parameters()) / 1e6)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))

    train(model, loader, sampler, optimizer, scheduler, args.epochs, rank)
    if rank == 0:
        logger.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
