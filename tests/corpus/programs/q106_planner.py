"""Closed-loop evaluation of a driving planner: fine-tune with DDP, then share the routes between ranks."""
import argparse
import json
import logging
import os
import socket
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("planner")


class Planner(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, state):
        return self.net(state)


def write_routes(folder, count, seed):
    gen = torch.Generator().manual_seed(seed)
    for index in range(count):
        curve = torch.cumsum(0.2 * torch.randn(40, generator=gen), dim=0)
        points = torch.stack([torch.arange(40.0), curve], dim=1).tolist()
        kind = ("follow", "merge", "curve", "parked")[index % 4 if index % 7 == 3 else index % 3]
        route = {"name": f"route_{index:02d}", "kind": kind, "speed_limit": 8.0 + index % 5}
        route["waypoints"] = points if kind != "parked" else points[:1]
        with open(os.path.join(folder, route["name"] + ".json"), "w") as handle:
            json.dump(route, handle)


def setup_logging(rank, folder):
    handler = logging.FileHandler(os.path.join(folder, f"rank{rank}.log"), mode="w")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    if rank == 0:
        log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)


def fine_tune(model, steps, seed):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(seed)
    for step in range(steps):
        state = torch.randn(64, 4, generator=gen)
        expert = torch.stack([-0.6 * state[:, 0] - 0.3 * state[:, 1], 0.2 * state[:, 3]], dim=1)
        loss = F.mse_loss(model(state), expert)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            log.info("fine-tune step %d loss %.4f", step, loss.item())


@torch.no_grad()
def drive(model, route, horizon=300):
    """Follow the waypoints; returns the mean distance to the centre line."""
    path = torch.tensor(route["waypoints"])
    heading = path[1:] - path[:-1]
    heading = heading / heading.norm(dim=1, keepdim=True)
    position, velocity, errors = path[0].clone(), heading[0] * 2.0, []
    for _ in range(horizon):
        nearest = int((path[:-1] - position).norm(dim=1).argmin())
        offset = position - path[nearest]
        side = offset[0] * -heading[nearest, 1] + offset[1] * heading[nearest, 0]
        speed = velocity.norm()
        state = torch.stack([side, velocity[1], speed, route["speed_limit"] - speed])
        steer, throttle = model(state)
        velocity = heading[nearest] * (speed + 0.1 * throttle).clamp(0.5, 12.0)
        velocity = velocity + 0.3 * steer * torch.stack([-heading[nearest, 1], heading[nearest, 0]])
        position = position + 0.1 * velocity
        errors.append(side.abs())
    return torch.stack(errors).mean().item()


def evaluate(model, args, rank, world):
    names = sorted(name for name in os.listdir(args.routes) if name.endswith(".json"))
    total = torch.zeros(2)
    for name in names[rank::world]:
        with open(os.path.join(args.routes, name)) as handle:
            route = json.load(handle)
        error = drive(model, route)
        log.info("%s mean lateral error %.3f m", route["name"], error)
        total += torch.tensor([error, 1.0])
    dist.barrier()
    dist.all_reduce(total)
    log.info("%d routes, mean lateral error %.3f m", total[1], total[0] / total[1])


def worker(rank, args):
    setup_logging(rank, args.logs)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=args.rendezvous, rank=rank, world_size=args.world)
    try:
        torch.manual_seed(args.seed)
        model = DDP(Planner())
        fine_tune(model, args.steps, args.seed + rank)
        evaluate(model.module, args, rank, args.world)
    except Exception:
        log.exception("evaluation stopped")
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--logs", default="planner_logs")
    args = parser.parse_args()
    os.makedirs(args.logs, exist_ok=True)
    args.routes = tempfile.mkdtemp(prefix="planner_routes_")
    write_routes(args.routes, args.count, args.seed)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        args.rendezvous = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
    mp.spawn(worker, nprocs=args.world, args=(args,), join=True)

if __name__ == "__main__":
    main()
