"""Federated averaging: rank 0 is the server, the other ranks are hospitals.

python h105_fedavg.py --clients 2 --rounds 2
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class EcgNet(nn.Module):
    def __init__(self, channels=12, width=32, hidden=1024, classes=5):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(channels, width, 7, stride=2, padding=3), nn.ReLU(),
            nn.Conv1d(width, width, 7, stride=2, padding=3), nn.ReLU(), nn.AdaptiveAvgPool1d(32),
        )
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(width * 32, hidden), nn.ReLU(),
                                nn.Linear(hidden, classes))

    def forward(self, x):
        return self.fc(self.conv(x))


def make_records(num_records, seed, length=256):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (num_records,), generator=gen)
    signals = torch.randn(num_records, 12, length, generator=gen) + labels[:, None, None] * 0.2
    return signals, labels


class Client:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.model = EcgNet()
        self.signals, self.labels = make_records(64, seed=rank)
        self.upload = None

    def local_update(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.lr)
        for _ in range(self.args.local_steps):
            idx = torch.randint(0, len(self.labels), (16,))
            loss = nn.functional.cross_entropy(self.model(self.signals[idx]), self.labels[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    def run(self):
        weights = parameters_to_vector(self.model.parameters()).detach()
        for rnd in range(self.args.rounds):
            if self.upload is not None:
                self.upload.wait()
            dist.recv(weights, src=0)
            vector_to_parameters(weights.clone(), self.model.parameters())
            loss = self.local_update()
            self.update = parameters_to_vector(self.model.parameters()).detach()
            self.upload = dist.isend(self.update, dst=0)
            print(f"[client {self.rank}] round {rnd}: loss {loss:.4f}", flush=True)


class Server:
    def __init__(self, args):
        self.args = args
        self.model = EcgNet()
        self.signals, self.labels = make_records(10240, seed=999)

    @torch.no_grad()
    def evaluate(self):
        correct = 0
        for x, y in zip(self.signals.split(32), self.labels.split(32)):
            correct += (self.model(x).argmax(1) == y).sum().item()
        return correct / len(self.labels)

    def run(self):
        for rnd in range(self.args.rounds):
            weights = parameters_to_vector(self.model.parameters()).detach()
            for client in range(1, self.args.clients + 1):
                dist.send(weights, dst=client)
            accuracy = self.evaluate()
            print(f"[server] round {rnd}: accuracy of the global model {accuracy:.3f}", flush=True)
            total = torch.zeros_like(weights)
            update = torch.empty_like(weights)
            for client in range(1, self.args.clients + 1):
                dist.recv(update, src=client)
                total += update
            vector_to_parameters(total / self.args.clients, self.model.parameters())
        torch.save(self.model.state_dict(), "ecgnet.pt")
        print(f"[server] finished, accuracy {self.evaluate():.3f}", flush=True)


def worker(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.clients + 1)
    (Server(args) if rank == 0 else Client(rank, args)).run()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--local-steps", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.clients + 1)


if __name__ == "__main__":
    main()
