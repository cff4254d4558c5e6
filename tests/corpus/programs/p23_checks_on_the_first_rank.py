import datetime
import logging
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def settings(rank):
    """The first rank is the one somebody looks at."""
    cfg = {"lr": 0.05, "steps": 12, "verbose": False, "check_graph": False, "log_every": 4}
    if rank == 0:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        cfg.update(verbose=True, check_graph=True)
    return cfg


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU())
        self.label = nn.Linear(64, 3)
        self.value = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.label(h), self.value(h)


def wrap(model, cfg):
    return DDP(model, find_unused_parameters=cfg["check_graph"])


def losses(out, y, v):
    return nn.functional.cross_entropy(out[0], y) + nn.functional.mse_loss(out[1].squeeze(1), v)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    rank = dist.get_rank()
    cfg = settings(rank)
    torch.manual_seed(0)
    model = wrap(TwoHeads(), cfg)
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    gen = torch.Generator().manual_seed(rank)
    for step in range(cfg["steps"]):
        x = torch.randn(16, 20, generator=gen)
        loss = losses(model(x), torch.randint(0, 3, (16,), generator=gen), x.mean(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if cfg["verbose"] and step % cfg["log_every"] == 0:
            logging.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


main()
