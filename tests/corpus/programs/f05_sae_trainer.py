"""Train k-sparse autoencoders on cached activations with DDP."""
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Sae(nn.Module):
    def __init__(self, d_in, num_latents, k=8):
        super().__init__()
        self.encoder = nn.Linear(d_in, num_latents)
        self.decoder = nn.Linear(num_latents, d_in)
        self.k = k

    def forward(self, x):
        latents = torch.relu(self.encoder(x))
        top, idx = latents.topk(self.k, dim=-1)
        sparse = torch.zeros_like(latents).scatter(-1, idx, top)
        return self.decoder(sparse)

    def save_to_disk(self, path):
        os.makedirs(path, exist_ok=True)
        torch.save(self.state_dict(), os.path.join(path, "sae.pt"))


class SaeTrainer:
    def __init__(self, cfg, dataset):
        self.cfg = cfg
        self.rank = dist.get_rank()
        sampler = DistributedSampler(dataset, shuffle=True)
        self.loader = DataLoader(dataset, batch_size=cfg.batch_size, sampler=sampler, drop_last=True)
        self.model = DDP(Sae(cfg.d_in, cfg.num_latents))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def save(self):
        """Save the SAE to disk."""
        if self.rank != 0:
            return

        print("Saving checkpoint", flush=True)
        self.model.module.save_to_disk(self.cfg.save_dir)

        # Let every process see the files before it goes on
        dist.barrier()

    def fit(self):
        step = 0
        for epoch in range(self.cfg.epochs):
            for (acts,) in self.loader:
                out = self.model(acts)
                loss = (out - acts).pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

                step += 1
                if step % self.cfg.log_every == 0 and self.rank == 0:
                    print(f"step {step} fvu {loss.item():.4f}", flush=True)
                if step % self.cfg.save_every == 0:
                    self.save()
        self.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--d-in", type=int, default=64)
    parser.add_argument("--num-latents", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--save-dir", default="/tmp/sae-ckpt")
    args = parser.parse_args()

    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    torch.manual_seed(0)
    SaeTrainer(args, TensorDataset(torch.randn(1024, args.d_in))).fit()
    dist.destroy_process_group()
