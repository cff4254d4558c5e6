import datetime
import torch
import torch.distributed as dist
import torch.nn as nn


class Member:
    """One of a population: trains alone, then all go on with the best one."""

    def __init__(self, rank, world):
        torch.manual_seed(rank)
        self.rank = rank
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.lr = 10 ** -(1 + rank)
        self.errors = torch.zeros(world)

    def train(self, steps):
        opt = torch.optim.SGD(self.net.parameters(), lr=self.lr)
        for _ in range(steps):
            x = torch.randn(64, 8)
            loss = (self.net(x) - x.sum(1, keepdim=True)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()

    def report(self, error):
        self.errors[self.rank] = error

    def best(self):
        return int(self.errors.argmin())

    def adopt(self, src):
        for p in self.net.parameters():
            dist.broadcast(p.data, src=src)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    me = Member(rank, world)
    for generation in range(3):
        error = me.train(40)
        me.report(error)
        winner = me.best()
        me.adopt(winner)
        print("generation", generation, "rank", rank, "error", round(error, 4), flush=True)
        dist.barrier()
    dist.destroy_process_group()


main()
