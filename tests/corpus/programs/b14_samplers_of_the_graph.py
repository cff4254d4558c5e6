import os
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
import torch.nn as nn

NUM_NODES = 2000


class FeatureStore:
    def __init__(self):
        torch.manual_seed(0)
        self.features = torch.randn(NUM_NODES, 32)

    def lookup(self, nodes):
        return self.features[nodes]


store = None


def lookup(nodes):
    time.sleep(0.05)
    return store.lookup(nodes)


def run_sampler(epochs, served):
    global store
    store = FeatureStore()
    rpc.init_rpc("sampler", rank=1, world_size=2)
    for _ in range(epochs):
        served.wait(timeout=2)
        served.clear()
    rpc.shutdown(graceful=False)


def run_trainer(epochs, served):
    rpc.init_rpc("trainer", rank=0, world_size=2)
    model = nn.Linear(32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for nodes in torch.randperm(NUM_NODES).split(50):
            features = rpc.rpc_sync("sampler", lookup, args=(nodes,))
            loss = nn.functional.cross_entropy(model(features), nodes % 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        served.set()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    rpc.shutdown()


def run(rank, epochs, served):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "28533"
    torch.set_num_threads(1)
    if rank == 0:
        run_trainer(epochs, served)
    else:
        run_sampler(epochs, served)


def main():
    served = mp.get_context("spawn").Event()
    mp.spawn(run, nprocs=2, args=(3, served))


if __name__ == "__main__":
    main()
