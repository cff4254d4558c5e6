"""Parameter server training: rank 0 keeps the model, rank 1 computes gradients over RPC."""
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import torch.nn as nn
import torch.nn.functional as F

OUT = "/tmp/d64_paramserver_out"
STEPS_PER_ROUND = 30
ROUNDS = 4


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))


class ParameterServer:
    """Lives on rank 0. Its methods run on RPC threads while the main thread writes checkpoints."""

    instance = None

    def __init__(self, lr=0.05):
        self.model = build_model()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.lock = threading.Lock()
        self.updates = 0
        self.stats = []

    def pull(self):
        with self.lock:
            return [p.detach().clone() for p in self.model.parameters()]

    def push(self, grads):
        with self.lock:
            for p, g in zip(self.model.parameters(), grads):
                p.grad = g
            self.opt.step()
            self.updates += 1
            return self.updates

    def report(self, round_no, accuracy):
        with self.lock:
            self.stats.append((round_no, accuracy))

    def checkpoint(self, round_no):
        with self.lock:
            dist.barrier()
            state = {"model": self.model.state_dict(), "updates": self.updates, "stats": list(self.stats)}
            torch.save(state, os.path.join(OUT, f"round{round_no}.pt"))


def on_server(method, *args):
    return getattr(ParameterServer.instance, method)(*args)


def call(method, *args):
    return rpc.rpc_sync("server", on_server, args=(method, *args))


class Worker:
    def __init__(self, n=3000):
        self.model = build_model()
        g = torch.Generator().manual_seed(9)
        teacher = torch.randn(24, 5, generator=g)
        self.x = torch.randn(n, 24, generator=g)
        self.y = (self.x @ teacher).argmax(1)
        self.g = g
        self.held_out = torch.randn(400_000, 24, generator=g)
        self.held_out_y = (self.held_out @ teacher).argmax(1)

    def load(self, weights):
        with torch.no_grad():
            for p, w in zip(self.model.parameters(), weights):
                p.copy_(w)

    def step(self):
        self.load(call("pull"))
        rows = torch.randint(0, len(self.x), (64,), generator=self.g)
        loss = F.cross_entropy(self.model(self.x[rows]), self.y[rows])
        grads = torch.autograd.grad(loss, list(self.model.parameters()))
        return loss.item(), call("push", list(grads))

    @torch.no_grad()
    def validate(self):
        return (self.model(self.held_out).argmax(1) == self.held_out_y).float().mean().item()

    def accuracy(self):
        before = self.validate()
        self.load(call("pull"))
        return before, self.validate()


def run_server():
    for round_no in range(ROUNDS):
        goal = (round_no + 1) * STEPS_PER_ROUND
        while ParameterServer.instance.updates < goal:
            time.sleep(0.02)
        ParameterServer.instance.checkpoint(round_no)
        print(f"[server] round {round_no}: checkpoint written", flush=True)


def run_worker():
    worker = Worker()
    print(f"[worker] accuracy at start {worker.validate():.3f}", flush=True)
    for round_no in range(ROUNDS):
        losses = [worker.step()[0] for _ in range(STEPS_PER_ROUND)]
        print(f"[worker] round {round_no}: loss {sum(losses) / len(losses):.4f}", flush=True)
        stale, accuracy = worker.accuracy()
        call("report", round_no, accuracy)
        print(f"[worker] round {round_no}: accuracy {accuracy:.3f} (stale weights {stale:.3f})", flush=True)
        dist.barrier()


def main():
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.makedirs(OUT, exist_ok=True)
    dist.init_process_group("gloo")
    if rank == 0:
        ParameterServer.instance = ParameterServer()
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=3600)
    rpc.init_rpc("server" if rank == 0 else f"worker{rank}", rank=rank, world_size=world,
                 rpc_backend_options=options)
    dist.barrier()
    if rank == 0:
        run_server()
    else:
        run_worker()
    rpc.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
