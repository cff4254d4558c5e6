import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Autoencoder(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def silent_neurons(model):
    counts = {}
    for name, module in model.named_modules():
        if isinstance(module, Block):
            activity = module.up.weight.grad.abs().sum(dim=1)
            counts[name] = len(torch.nonzero(activity == 0))
    return counts


def train(steps=6, report_every=3):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Autoencoder()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(1, steps + 1):
        x = torch.randn(16, 32)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        if step % report_every == 0:
            counts = silent_neurons(model)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.4f}, silent {counts}", flush=True)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
