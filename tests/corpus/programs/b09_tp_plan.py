import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(torch.relu(self.w1(x)))


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dp-size", type=int, default=2)
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


def train(model, dp_group, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(8, 32)
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad.to_local(), group=dp_group)
        optimizer.step()
        optimizer.zero_grad()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (args.dp_size, args.tp_size), mesh_dim_names=("dp", "tp"))
    model = FeedForward()
    plan = {"w1": ColwiseParallel(), "w2": RowwiseParallel()}
    model = parallelize_module(model, mesh["tp"], plan)
    train(model, mesh["dp"].get_group(), args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
