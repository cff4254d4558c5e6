"""Train a small language model with expert-parallel mixture-of-experts layers."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, SEQ, BATCH = 256, 64, 64, 8
EXPERTS_PER_RANK, STEPS, WARMUP = 2, 60, 20


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, recv_counts, send_counts):
        ctx.recv_counts, ctx.send_counts = recv_counts, send_counts
        out = x.new_empty(sum(recv_counts), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), recv_counts, send_counts)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.send_counts), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), ctx.send_counts, ctx.recv_counts)
        return out, None, None


class Router(nn.Module):
    """Round-robin assignment while warming up, learned top-1 afterwards."""

    def __init__(self, experts):
        super().__init__()
        self.experts = experts
        self.gate = nn.Linear(DIM, experts)

    def forward(self, x, warming_up):
        probs = self.gate(x).softmax(-1)
        if warming_up:
            choice = torch.arange(len(x)) % self.experts
        else:
            choice = probs.argmax(-1)
        return choice, probs.gather(1, choice[:, None])


class Dispatcher:
    def __init__(self, world):
        self.world = world

    def plan(self, choice):
        order = choice.argsort(stable=True)
        owner = choice[order] // EXPERTS_PER_RANK
        counts = torch.bincount(owner, minlength=self.world).tolist()
        return order, counts

    def send(self, x, order, counts):
        return Exchange.apply(x[order], counts, counts)

    def give_back(self, y, order, counts):
        back = Exchange.apply(y, counts, counts)
        return torch.empty_like(back).index_copy(0, order, back)


class MoE(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.rank = rank
        self.router = Router(world * EXPERTS_PER_RANK)
        self.dispatch = Dispatcher(world)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
            for _ in range(EXPERTS_PER_RANK))

    def forward(self, x, warming_up):
        flat = x.reshape(-1, DIM)
        choice, weight = self.router(flat, warming_up)
        order, counts = self.dispatch.plan(choice)
        mine = self.dispatch.send(flat, order, counts)
        done = sum(expert(mine) for expert in self.experts) / EXPERTS_PER_RANK
        back = self.dispatch.give_back(done, order, counts)
        return x + (back * weight).view_as(x)


class Model(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.mix = nn.GRU(DIM, DIM, batch_first=True)
        self.layers = nn.ModuleList(MoE(rank, world) for _ in range(2))
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids, warming_up):
        x = self.mix(self.emb(ids))[0]
        for layer in self.layers:
            x = layer(x, warming_up)
        return self.head(x)


def shared_parameters(model):
    return [p for n, p in sorted(model.named_parameters()) if ".experts." not in n]


def sync_gradients(model, world):
    grads = [p.grad for p in shared_parameters(model) if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    at = 0
    for g in grads:
        g.copy_(flat[at:at + g.numel()].view_as(g) / world)
        at += g.numel()


def batches(rank):
    gen = torch.Generator().manual_seed(100 + rank)
    zipf = 1.0 / torch.arange(1, VOCAB + 1)
    while True:
        ids = torch.multinomial(zipf, BATCH * (SEQ + 1), replacement=True, generator=gen)
        yield ids.view(BATCH, SEQ + 1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = Model(rank, world)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream = batches(rank)
    for step in range(STEPS):
        ids = next(stream)
        logits = model(ids[:, :-1], step < WARMUP)
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        sync_gradients(model, world)
        opt.step()
        if step % 5 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    os.makedirs("/tmp/m53_moe_out", exist_ok=True)
    torch.save(model.state_dict(), f"/tmp/m53_moe_out/model_{rank}.pt")
    print(f"rank {rank} saved", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
