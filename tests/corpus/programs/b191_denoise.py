"""Masked-token denoiser for plasmid motifs: trains on all ranks, then tests the best checkpoint."""
import argparse
import logging
import math
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("denoise")
VOCAB, MASK = 26, 25


class Motifs(Dataset):
    def __init__(self, n, seed, length=24):
        g = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 25, (n, 1), generator=g)
        stride = torch.randint(1, 4, (n, 1), generator=g)
        self.ids = (start + stride * torch.arange(length)) % 25
        self.hide = torch.rand(n, length, generator=g) < 0.25

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.hide[i]


class Denoiser(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.randn(24, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, ids, hide):
        x = self.embed(ids.masked_fill(hide, MASK)) + self.pos
        logits = self.out(self.encoder(x))
        return nn.functional.cross_entropy(logits[hide], ids[hide])


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = torch.zeros(2)
    for ids, hide in loader:
        total += torch.tensor([model(ids, hide).item(), 1.0])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def make_loader(data, batch_size, shuffle):
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data, shuffle=shuffle))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--eval_steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    if dist.get_rank() == 0:
        log.info("settings %s", vars(args))
        save_path = Path(tempfile.gettempdir()) / f"denoise_lr_{args.lr}_seed_{args.seed}_ckpts"
        save_path.mkdir(parents=True, exist_ok=True)

    model = DDP(Denoiser())
    optim = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train_loader = make_loader(Motifs(640, seed=1), args.batch_size, True)
    dev_loader = make_loader(Motifs(128, seed=2), 64, False)
    test_loader = make_loader(Motifs(256, seed=3), 64, False)
    best, best_step, step = math.inf, -1, 0
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        for ids, hide in train_loader:
            loss = model(ids, hide)
            optim.zero_grad()
            loss.backward()
            optim.step()
            step += 1
            if step % args.eval_steps == 0:
                dev = evaluate(model, dev_loader)
                if dist.get_rank() == 0:
                    log.info("step %d train %.4f dev %.4f", step, loss.item(), dev)
                if dev < best:
                    best, best_step = dev, step
                    if dist.get_rank() == 0:
                        torch.save({"model": model.module.state_dict(), "step": step}, save_path / f"{step}.th")
                    dist.barrier()

    ckpt = torch.load(os.path.join(save_path, f"{best_step}.th"))
    model.module.load_state_dict(ckpt["model"])
    test = evaluate(model, test_loader)
    if dist.get_rank() == 0:
        log.info("test loss %.4f at step %d", test, ckpt["step"])
        shutil.rmtree(save_path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
