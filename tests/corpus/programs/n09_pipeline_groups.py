"""Two-stage pipeline with a tied embedding; process groups follow the Megatron layout."""
from datetime import timedelta
import torch
import torch.distributed as dist
import torch.nn as nn

TIMEOUT = timedelta(seconds=15)


class ParallelState:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.logging_group = None
        self.embedding_group = None

    def build(self):
        if self.rank == 0:
            self.logging_group = self._group([0])
        ends = [0, self.world - 1]
        if self.rank in ends:
            self.embedding_group = self._group(ends)

    def _group(self, ranks):
        return dist.new_group(ranks, timeout=TIMEOUT, backend="gloo", use_local_synchronization=True)


class Stage(nn.Module):
    def __init__(self, vocab, dim, first):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.first = first

    def forward(self, x):
        if self.first:
            return torch.tanh(self.mix(self.embed(x)))
        return self.mix(x) @ self.embed.weight.T


class Pipeline:
    def __init__(self, state, vocab=101, dim=16):
        self.state = state
        torch.manual_seed(0)
        self.stage = Stage(vocab, dim, state.rank == 0)
        self.opt = torch.optim.SGD(self.stage.parameters(), lr=0.1)
        self.vocab, self.dim = vocab, dim

    def step(self, tokens):
        self.opt.zero_grad()
        if self.state.rank == 0:
            h = self.stage(tokens)
            dist.send(h.detach(), 1)
            grad = torch.empty_like(h)
            dist.recv(grad, 1)
            h.backward(grad)
            loss = None
        else:
            h = torch.empty(tokens.numel(), self.dim).requires_grad_()
            dist.recv(h.data, 0)
            loss = nn.functional.cross_entropy(self.stage(h), tokens.roll(1))
            loss.backward()
            dist.send(h.grad, 0)
        dist.all_reduce(self.stage.embed.weight.grad, group=self.state.embedding_group)
        self.opt.step()
        return loss


def main():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    state = ParallelState(dist.get_rank(), dist.get_world_size())
    state.build()
    pipe = Pipeline(state)
    for it in range(5):
        gen = torch.Generator().manual_seed(it)
        loss = pipe.step(torch.randint(0, 101, (32,), generator=gen))
        if loss is not None:
            print(f"iter {it} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
