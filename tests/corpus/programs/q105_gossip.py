"""Decentralised training of a soil-moisture model: peers average their weights with a neighbour."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BANDS = 10


class MoistureNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(BANDS, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1),
        )

    def forward(self, spectra):
        return self.net(spectra).squeeze(-1)


class Station:
    """Measurements of one region; every region has its own soil offset."""

    def __init__(self, region, samples):
        gen = torch.Generator().manual_seed(50 + region)
        weights = torch.linspace(-1, 1, BANDS)
        self.spectra = torch.randn(samples, BANDS, generator=gen)
        self.moisture = torch.sigmoid(self.spectra @ weights + 0.3 * region)
        self.gen = gen

    def batches(self, size):
        order = torch.randperm(len(self.spectra), generator=self.gen)
        for rows in order.split(size):
            yield self.spectra[rows], self.moisture[rows]


class GossipPeer:
    def __init__(self, args):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        torch.manual_seed(args.seed)
        self.model = MoistureNet(args.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.station = Station(self.rank, args.samples)
        self.batch_size = args.batch_size

    def local_epoch(self):
        total, count = 0.0, 0
        for spectra, moisture in self.station.batches(self.batch_size):
            loss = F.mse_loss(self.model(spectra), moisture)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, count = total + loss.item(), count + 1
        return total / count

    def neighbour(self, epoch):
        """Partner of this epoch: pairs in even epochs, shifted pairs in odd epochs."""
        shift = 1 if (self.rank + epoch) % 2 == 0 else -1
        return (self.rank + shift) % self.world

    def average_with(self, peer):
        mine = parameters_to_vector(self.model.parameters()).detach()
        theirs = torch.empty_like(mine)
        dist.send(mine, dst=peer)
        dist.recv(theirs, src=peer)
        vector_to_parameters((mine + theirs) / 2, self.model.parameters())
        return (mine - theirs).norm().item()


def consensus_error(peer):
    vector = parameters_to_vector(peer.model.parameters()).detach()
    mean = vector.clone()
    dist.all_reduce(mean)
    return (vector - mean / peer.world).norm().item()


def train(args):
    peer = GossipPeer(args)
    for epoch in range(args.epochs):
        loss = peer.local_epoch()
        error = consensus_error(peer)
        if peer.rank == 0:
            print(f"epoch {epoch} local loss {loss:.5f} distance to the mean {error:.4f}", flush=True)
        if epoch >= args.warmup:
            distance = peer.average_with(peer.neighbour(epoch))
            if peer.rank == 0:
                print(f"epoch {epoch} averaged with the neighbour, was {distance:.4f} apart", flush=True)
    return peer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3, help="epochs before the first exchange")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    peer = train(args)
    final = consensus_error(peer)
    if peer.rank == 0:
        print(f"finished, distance to the mean {final:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
