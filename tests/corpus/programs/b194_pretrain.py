"""Pretrains a small byte-pair language model; AdamW states are sharded over the ranks."""
import logging
import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("pretrain")


class Corpus(Dataset):
    """Windows of a synthetic token stream with strong bigram structure."""

    def __init__(self, vocab_size, tokens=24_000, window=32, seed=13):
        g = torch.Generator().manual_seed(seed)
        follow = torch.randint(0, vocab_size, (vocab_size, 4), generator=g)
        pick = torch.randint(0, 4, (tokens,), generator=g)
        stream, t = [], 0
        for k in range(tokens):
            t = int(follow[t, pick[k]])
            stream.append(t)
        self.stream, self.window = torch.tensor(stream), window

    def __len__(self):
        return (len(self.stream) - 1) // self.window

    def __getitem__(self, i):
        part = self.stream[i * self.window:(i + 1) * self.window + 1]
        return part[:-1], part[1:]


class TinyLM(nn.Module):
    def __init__(self, vocab_size, dim=64, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, dim)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers))
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, idx, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.size(1))
        x = self.wte(idx)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.lm_head(x).flatten(0, 1), targets.flatten())


class DistAdamW(torch.optim.Optimizer):
    """Every rank reduces, updates and gathers its own slice of rows of each parameter."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                rows = p.shape[0] // world
                grad = torch.empty_like(p.grad[:rows])
                dist.reduce_scatter_tensor(grad, p.grad.contiguous(), op=dist.ReduceOp.SUM)
                grad /= world
                mine = p[rank * rows:(rank + 1) * rows]
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(mine), torch.zeros_like(mine)
                state["step"] += 1
                state["m"].lerp_(grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                denom = (state["v"] / (1 - b2 ** state["step"])).sqrt_().add_(group["eps"])
                mine.mul_(1 - group["lr"] * group["weight_decay"])
                mine.addcdiv_(state["m"] / (1 - b1 ** state["step"]), denom, value=-group["lr"])
                dist.all_gather_into_tensor(p.data, mine.contiguous())


def setup_optimizers(model):
    blocks = list(model.blocks.parameters())
    return [DistAdamW(blocks, lr=1e-3, weight_decay=0.01),
            DistAdamW([*model.wte.parameters(), *model.lm_head.parameters()], lr=3e-3)]


def main(vocab_size=517, batch_size=16, max_steps=60):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42)
    model = TinyLM(vocab_size)
    optimizers = setup_optimizers(model)
    data = Corpus(vocab_size)
    loader = DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data, seed=1), drop_last=True)
    if rank == 0:
        log.info("vocab %d, %d parameters, %d windows", vocab_size, sum(p.numel() for p in model.parameters()), len(data))
    step = 0
    while step < max_steps:
        for idx, targets in loader:
            loss = model(idx, targets)
            loss.backward()
            for opt in optimizers:
                opt.step()
            model.zero_grad(set_to_none=True)
            if rank == 0 and step % 10 == 0:
                log.info("step %d loss %.4f ppl %.1f", step, loss.item(), math.exp(loss.item()))
            step += 1
            if step == max_steps:
                break
    if rank == 0:
        log.info("finished after %d steps", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
