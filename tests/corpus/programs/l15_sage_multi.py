import math
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

N_NODES, N_FEATS, N_CLASSES, FANOUT, BATCH_SIZE = 12000, 32, 7, 5, 1024


class SAGE(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.self1, self.neigh1 = nn.Linear(N_FEATS, hidden), nn.Linear(N_FEATS, hidden)
        self.out = nn.Linear(hidden, N_CLASSES)

    def forward(self, x, neigh):
        return self.out(torch.relu(self.self1(x) + self.neigh1(neigh.mean(1))))


def load_graph():
    gen = torch.Generator().manual_seed(1)
    feats = torch.randn(N_NODES, N_FEATS, generator=gen)
    labels = feats[:, :N_CLASSES].argmax(1)
    neighbours = torch.randint(0, N_NODES, (N_NODES, 20), generator=gen)
    train_mask = torch.zeros(N_NODES, dtype=torch.bool)
    train_mask[torch.randperm(N_NODES, generator=gen)[:4097]] = True
    return feats, labels, neighbours, train_mask


class NeighborSampler:
    def __init__(self, graph):
        self.feats, self.labels, self.neighbours, _ = graph

    def __call__(self, seeds):
        seeds = torch.stack(list(seeds))
        pick = torch.randint(0, self.neighbours.shape[1], (len(seeds), FANOUT))
        neigh = self.neighbours[seeds].gather(1, pick)
        return self.feats[seeds], self.feats[neigh], self.labels[seeds]


def run(proc_id, n_procs, graph):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29561", world_size=n_procs, rank=proc_id)
    torch.manual_seed(proc_id)
    torch.set_num_threads(1)
    train_nid = graph[3].nonzero(as_tuple=True)[0]
    train_nid = torch.split(train_nid, math.ceil(len(train_nid) / n_procs))[proc_id]
    dataloader = DataLoader(train_nid, batch_size=BATCH_SIZE, shuffle=True, drop_last=False,
                            collate_fn=NeighborSampler(graph))
    model = DistributedDataParallel(SAGE())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        for step, (x, neigh, y) in enumerate(dataloader):
            loss = nn.functional.cross_entropy(model(x, neigh), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"[{proc_id}] epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        dist.barrier()
        if proc_id == 0:
            torch.save(model.module.state_dict(), "/tmp/l15_run/sage.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.makedirs("/tmp/l15_run", exist_ok=True)
    mp.spawn(run, args=(2, load_graph()), nprocs=2)
