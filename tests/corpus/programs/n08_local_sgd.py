"""Local SGD: every rank trains on its own shard, gradients are averaged now and then."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class MultiTask(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.age = nn.Linear(dim, 1)
        self.disease = nn.Linear(dim, 12)

    def loss(self, batch):
        h = self.trunk(batch["x"])
        loss = F.mse_loss(self.age(h).squeeze(1), batch["age"])
        labelled = batch["disease"] >= 0
        if labelled.any():
            loss = loss + F.cross_entropy(self.disease(h[labelled]), batch["disease"][labelled])
        return loss


class Shard:
    """Patient records of one hospital; the diagnosis column is sparse."""

    def __init__(self, rank, n=2048):
        gen = torch.Generator().manual_seed(100 + rank)
        self.x = torch.randn(n, 20, generator=gen)
        self.age = self.x[:, 0] * 3 + 40
        self.disease = torch.full((n,), -1)
        known = slice(0, n) if rank == 0 else slice(0, n // 4)
        self.disease[known] = torch.randint(0, 12, (len(self.disease[known]),), generator=gen)

    def batches(self, size=64):
        for i in range(0, len(self.x), size):
            sl = slice(i, i + size)
            yield {"x": self.x[sl], "age": self.age[sl], "disease": self.disease[sl]}


def average_gradients(model, world):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for g in grads:
        g.copy_(flat[offset:offset + g.numel()].view_as(g))
        offset += g.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = MultiTask()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, batch in enumerate(Shard(rank).batches()):
        opt.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        average_gradients(model, world)
        opt.step()
        if step % 4 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
