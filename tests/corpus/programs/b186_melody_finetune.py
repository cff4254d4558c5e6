import argparse
import functools
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("melody")


class CodecTokens(Dataset):
    def __init__(self, n=64, length=32, card=64, chroma=12):
        g = torch.Generator().manual_seed(17)
        self.tokens = torch.randint(0, card, (n, length), generator=g)
        self.chroma = torch.rand(n, 8, chroma, generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.chroma[i]


class ChromaConditioner(nn.Module):
    def __init__(self, chroma=12, dim=48):
        super().__init__()
        self.smooth = nn.Conv1d(chroma, chroma, 3, padding=1)
        self.output_proj = nn.Linear(chroma, dim)

    def forward(self, chroma):
        h = self.smooth(chroma.transpose(1, 2)).transpose(1, 2)
        return self.output_proj(h)


class Block(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class MusicLM(nn.Module):
    def __init__(self, card=64, dim=48, layers=3):
        super().__init__()
        self.emb = nn.Embedding(card, dim)
        self.conditioner = ChromaConditioner(dim=dim)
        self.layers = nn.ModuleList([Block(dim) for _ in range(layers)])
        self.head = nn.Linear(dim, card)

    def forward(self, tokens, chroma):
        cond = self.conditioner(chroma)
        x = torch.cat([cond, self.emb(tokens)], 1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, cond.size(1):])


def build_model(freeze_conditioner):
    torch.manual_seed(0)
    model = MusicLM()
    if freeze_conditioner:
        for p in model.conditioner.output_proj.parameters():
            p.requires_grad = False
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    log.info("trainable parameters: %d of %d", trainable, sum(p.numel() for p in model.parameters()))
    return model


def wrap(model):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--train-conditioner", action="store_true")
    args = ap.parse_args()
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{dist.get_rank()}] %(message)s")
    model = wrap(build_model(not args.train_conditioner))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-4)
    data = CodecTokens()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for tokens, chroma in loader:
            logits = model(tokens, chroma)
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            model.clip_grad_norm_(1.0)
            opt.step()
        log.info("epoch %d ce %.4f", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
