"""Block drafter for speculative decoding, data parallel over local processes.

    python l148_draft.py
"""
import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB, BLOCK, PAD = 96, 8, 0


class Conversations(Dataset):
    """Token sequences of chats, with the length of each one."""

    def __init__(self, n=640, max_len=40, seed=2):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.full((n, max_len), PAD)
        self.lengths = torch.randint(12, max_len, (n,), generator=g)
        # short exchanges ("ok", "thanks") of the support channel
        self.lengths[401:417:2] = torch.randint(3, BLOCK, (8,), generator=g)
        for i, length in enumerate(self.lengths.tolist()):
            start = torch.randint(1, VOCAB, (1,), generator=g)
            self.tokens[i, :length] = (start + 3 * torch.arange(length)) % (VOCAB - 1) + 1

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.lengths[i]


class Drafter(nn.Module):
    """Predicts a block of tokens from the anchor token before it."""

    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, dim))
        self.slots = nn.Parameter(torch.randn(BLOCK - 1, dim) * 0.02)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, anchors, blocks):
        h = self.mlp(self.embed(anchors)).unsqueeze(1) + self.slots
        return F.cross_entropy(self.out(F.gelu(h)).flatten(0, 1), blocks.flatten())


class NoValidAnchorsError(ValueError):
    pass


def sample_blocks(tokens, lengths, generator):
    """One anchor for every sequence that has room for a whole block."""
    keep = lengths >= BLOCK
    if not keep.any():
        raise NoValidAnchorsError("every sequence of the batch is shorter than a block")
    tokens, room = tokens[keep], lengths[keep] - BLOCK + 1
    pos = (torch.rand(len(room), generator=generator) * room).long()
    idx = pos.unsqueeze(1) + torch.arange(BLOCK)
    window = tokens.gather(1, idx)
    return window[:, 0], window[:, 1:]


class Trainer:
    def __init__(self, rank, world, args):
        torch.manual_seed(0)
        self.rank, self.args = rank, args
        data = Conversations()
        sampler = DistributedSampler(data, world, rank, shuffle=False)
        self.loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
        self.model = DistributedDataParallel(Drafter())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.generator = torch.Generator().manual_seed(rank)

    def train_epoch(self, epoch):
        for step, (tokens, lengths) in enumerate(self.loader):
            try:
                anchors, blocks = sample_blocks(tokens, lengths, self.generator)
            except NoValidAnchorsError:
                continue
            loss = self.model(anchors, blocks)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step:2d} loss {loss.item():.4f}", flush=True)

    def save(self, epoch):
        dist.barrier()
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), f"drafter-{epoch}.pt")
            print(f"saved drafter-{epoch}.pt", flush=True)


def worker(rank, world, port, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    trainer = Trainer(rank, world, args)
    for epoch in range(args.epochs):
        trainer.train_epoch(epoch)
        trainer.save(epoch)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args.world, port, args), nprocs=args.world)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
