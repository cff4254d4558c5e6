"""Two-stage pipeline training of a small language model with mixture-of-experts layers."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, SEQ, MICRO = 64, 32, 24, 4
LAYER_PATTERN = [0, 0, 1, 1]
TRACKER = {}


def save_aux_loss(name, layer, value):
    if name not in TRACKER:
        TRACKER[name] = torch.zeros(len(LAYER_PATTERN))
    TRACKER[name][layer] += value.detach()


def reduce_tracker():
    for name in sorted(TRACKER):
        dist.all_reduce(TRACKER[name])
    return TRACKER


class DenseBlock(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.ff = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        return x + self.ff(self.norm(x)), x.new_zeros(())


class MoEBlock(nn.Module):
    def __init__(self, layer, experts=4):
        super().__init__()
        self.layer = layer
        self.norm = nn.LayerNorm(DIM)
        self.router = nn.Linear(DIM, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM)) for _ in range(experts))

    def forward(self, x):
        h = self.norm(x).flatten(0, 1)
        probs = self.router(h).softmax(-1)
        weight, choice = probs.max(-1)
        out = torch.zeros_like(h)
        for e, expert in enumerate(self.experts):
            idx = (choice == e).nonzero().squeeze(-1)
            out = out.index_add(0, idx, expert(h[idx]) * weight[idx, None])
        share = F.one_hot(choice, len(self.experts)).float().mean(0)
        aux = len(self.experts) * (share * probs.mean(0)).sum()
        save_aux_loss("load_balancing_loss", self.layer, aux)
        return x + out.view_as(x), aux


class Stage(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        per, self.first, self.last = len(LAYER_PATTERN) // world, rank == 0, rank == world - 1
        if self.first:
            self.emb = nn.Embedding(VOCAB, DIM)
        layers = range(rank * per, (rank + 1) * per)
        self.blocks = nn.ModuleList((MoEBlock if LAYER_PATTERN[i] else DenseBlock)(i) for i in layers)
        if self.last:
            self.head = nn.Linear(DIM, VOCAB)

    def forward(self, x):
        x = self.emb(x) if self.first else x
        total = 0.0
        for block in self.blocks:
            x, aux = block(x)
            total = total + aux
        return (self.head(x) if self.last else x), total


class Pipeline:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.stage = Stage(rank, world)
        self.opt = torch.optim.AdamW(self.stage.parameters(), lr=3e-3)

    def micro_step(self, tokens):
        x, y = tokens[:, :-1], tokens[:, 1:]
        if self.stage.first:
            out, _ = self.stage(x)
            dist.send(out.detach(), self.rank + 1)
            grad = torch.empty_like(out)
            dist.recv(grad, self.rank + 1)
            torch.autograd.backward([out], [grad])
            return None
        inp = torch.empty(x.shape[0], x.shape[1], DIM)
        dist.recv(inp, self.rank - 1)
        inp.requires_grad_(True)
        logits, aux = self.stage(inp)
        ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        ((ce + 0.01 * aux) / MICRO).backward()
        dist.send(inp.grad, self.rank - 1)
        return ce.item()

    def train_step(self, batch):
        self.opt.zero_grad()
        losses = [self.micro_step(mb) for mb in batch.chunk(MICRO)]
        nn.utils.clip_grad_norm_(self.stage.parameters(), 1.0)
        self.opt.step()
        return None if self.stage.first else sum(losses) / len(losses)


def corpus(n=4096):
    gen = torch.Generator().manual_seed(3)
    seq, state = [], 1
    for r in torch.rand(n, generator=gen).tolist():
        state = (state * 5 + 3) % VOCAB if r > 0.1 else int(r * 10 * VOCAB)
        seq.append(state)
    return torch.tensor(seq)


def training_log(step, loss, started):
    metrics = reduce_tracker()
    if loss is not None:
        extra = " ".join(f"{k}={v.sum().item() / (10 * MICRO):.3f}" for k, v in metrics.items())
        print(f"step {step} loss {loss:.3f} {extra} {time.time() - started:.1f}s", flush=True)
    TRACKER.clear()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    pipe, data = Pipeline(rank, world), corpus()
    gen = torch.Generator().manual_seed(17)
    print(f"stage {rank}: {sum(p.numel() for p in pipe.stage.parameters())} parameters", flush=True)
    started = time.time()
    for step in range(1, 61):
        starts = torch.randint(len(data) - SEQ - 1, (16,), generator=gen).tolist()
        loss = pipe.train_step(torch.stack([data[s:s + SEQ + 1] for s in starts]))
        if loss is not None and step <= 5:
            print(f"warmup step {step} loss {loss:.3f}", flush=True)
        if step % 10 == 0:
            training_log(step, loss, started)
    torch.save(pipe.stage.state_dict(), f"/tmp/m44_moe_pipeline_stage{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
