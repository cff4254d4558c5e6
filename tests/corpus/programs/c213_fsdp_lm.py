"""Small decoder LM trained with FSDP full sharding; saves its state so that a run can be resumed."""
import argparse
import logging
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("fsdp_lm")


class TokenDataset(Dataset):
    def __init__(self, n, length, vocab):
        g = torch.Generator().manual_seed(5)
        self.data = torch.randint(0, vocab, (n, length + 1), generator=g)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i, :-1], self.data[i, 1:]


class Block(nn.Module):
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


class DecoderLM(nn.Module):
    def __init__(self, vocab, dim, layers, heads, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        n = tokens.size(1)
        mask = torch.full((n, n), float("-inf")).triu(1)
        x = self.embed(tokens) + self.pos(torch.arange(n))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Trainer:
    def __init__(self, model, loader, cfg, output_dir):
        self.model, self.loader, self.cfg = model, loader, cfg
        self.output_dir = output_dir
        self.rank = dist.get_rank()
        self.is_main_process = self.rank == 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        self.step = 0

    def wait_for_everyone(self):
        dist.barrier()

    def save_state(self, folder):
        log.info("rank %d saving state to %s", self.rank, os.path.basename(folder))
        os.makedirs(folder, exist_ok=True)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)
        torch.save({"model": state, "step": self.step}, os.path.join(folder, "pytorch_model.bin"))
        log.info("state saved")

    def train(self):
        for epoch in range(self.cfg.epochs):
            self.loader.sampler.set_epoch(epoch)
            for tokens, targets in self.loader:
                loss = F.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.is_main_process and self.step % 5 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, self.step, loss.item())
            self.wait_for_everyone()
            if self.is_main_process:
                if self.cfg.save_state:
                    self.save_state(os.path.join(self.output_dir, f"epoch_{epoch}"))
            self.wait_for_everyone()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--save_state", type=int, default=1)
    cfg = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(0)

    folder = [tempfile.mkdtemp(prefix="fsdp_lm_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    dataset = TokenDataset(240, 32, 400)
    loader = DataLoader(dataset, cfg.batch_size, sampler=DistributedSampler(dataset))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = DecoderLM(400, 64, 3, 4, 32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    Trainer(model, loader, cfg, folder[0]).train()
    if dist.get_rank() == 0:
        log.info("training complete")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
