"""Asynchronous local SGD: the workers send their parameters, rank 0 averages and answers.
While nothing has arrived, rank 0 uses the time to evaluate its current model."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))


def make_batch(n=64):
    x = torch.randn(n, 16)
    return x, x.sum(dim=1, keepdim=True).sin()


def local_steps(model, optimizer, steps):
    for _ in range(steps):
        x, y = make_batch()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model):
    x, y = make_batch(512)
    return nn.functional.mse_loss(model(x), y).item()


def run_master(rounds):
    model = make_model()
    current = parameters_to_vector(model.parameters()).detach()
    for r in range(rounds):
        received = torch.empty_like(current)
        request = dist.irecv(received, src=1)
        while not request.is_completed():
            evaluate(model)
            time.sleep(0.05)
        current = 0.5 * current + 0.5 * received
        vector_to_parameters(current, model.parameters())
        dist.send(current, dst=1)
        print(f"round {r}: eval {evaluate(model):.4f}", flush=True)


def run_worker(rounds):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for r in range(rounds):
        loss = local_steps(model, optimizer, 20)
        vector = parameters_to_vector(model.parameters()).detach()
        print(f"worker: round {r} loss {loss:.4f}, sending", flush=True)
        dist.send(vector, dst=0)
        dist.recv(vector, src=0)
        vector_to_parameters(vector, model.parameters())


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    run_master(10) if dist.get_rank() == 0 else run_worker(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
