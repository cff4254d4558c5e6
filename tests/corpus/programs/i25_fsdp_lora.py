import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class LoraLinear(nn.Module):
    def __init__(self, dim_in, dim_out, rank=8):
        super().__init__()
        self.base = nn.Linear(dim_in, dim_out)
        self.lora_a = nn.Linear(dim_in, rank, bias=False)
        self.lora_b = nn.Linear(rank, dim_out, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


class TinyUNet(nn.Module):
    def __init__(self, dim=64, depth=3):
        super().__init__()
        self.time = nn.Linear(1, dim)
        self.blocks = nn.ModuleList(LoraLinear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, dim)

    def forward(self, x, t):
        h = x + self.time(t)
        for block in self.blocks:
            h = h + F.silu(block(h))
        return self.out(h)


class Trainer:
    def __init__(self, output_dir, save_every=5, max_steps=20):
        self.rank = dist.get_rank()
        self.is_main_process = self.rank == 0
        self.output_dir, self.save_every, self.max_steps = output_dir, save_every, max_steps
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = TinyUNet()
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def training_step(self):
        latents = torch.randn(16, 64)
        t = torch.rand(16, 1)
        noise = torch.randn_like(latents)
        pred = self.model((1 - t) * latents + t * noise, t)
        loss = F.mse_loss(pred, noise - latents)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def save_lora(self, step):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)
        lora = {k: v for k, v in state.items() if "lora_" in k}
        path = os.path.join(self.output_dir, f"checkpoint_{step}_lora.pt")
        torch.save(lora, path)
        print(f"saved {len(lora)} tensors to {path}", flush=True)

    def fit(self):
        for step in range(1, self.max_steps + 1):
            loss = self.training_step()
            print(f"[rank {self.rank}] step {step} loss {loss:.4f}", flush=True)
            if step % self.save_every == 0 and self.is_main_process:
                self.save_lora(step)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    output_dir = "/tmp/i25_out"
    os.makedirs(output_dir, exist_ok=True)
    Trainer(output_dir).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
