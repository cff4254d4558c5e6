import os

import torch
import torch.distributed as dist
from torch import nn


def configure_cluster():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("NCCL_IB_DISABLE", "0")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "ib0")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "ib0")


def all_reduce_norm(model):
    states = {name: value for name, value in model.state_dict().items() if "running" in name}
    for value in states.values():
        dist.all_reduce(value)
        value /= dist.get_world_size()


class Trainer:
    def __init__(self, epochs=2):
        self.epochs = epochs
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.LazyLinear(4))
        self.model(torch.rand(2, 3, 16, 16))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def train_one_epoch(self):
        for _ in range(4):
            images, labels = torch.rand(8, 3, 16, 16), torch.randint(0, 4, (8,))
            loss = nn.functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def train(self):
        for epoch in range(self.epochs):
            loss = self.train_one_epoch()
            all_reduce_norm(self.model)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {loss:.4f}")


def main():
    configure_cluster()
    dist.init_process_group("gloo")
    Trainer().train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
