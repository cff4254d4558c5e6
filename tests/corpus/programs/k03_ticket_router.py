"""Route support tickets: train a bag-of-tokens model, then answer from a thread pool."""
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F

TEAMS = ("billing", "network", "hardware", "other")


class Tickets:
    def __init__(self, count=512, vocab=2000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.team = torch.randint(0, len(TEAMS), (count,), generator=g)
        self.ids = [torch.randint(0, vocab, (int(torch.randint(5, 60, (1,), generator=g)),), generator=g)
                    for _ in range(count)]

    def batches(self, size):
        for i in range(0, len(self.ids), size):
            part = self.ids[i:i + size]
            ends = torch.tensor([len(t) for t in part]).cumsum(0)
            offsets = torch.cat([torch.zeros(1, dtype=torch.long), ends])
            yield torch.cat(part), offsets, self.team[i:i + size]


class Router(nn.Module):
    def __init__(self, vocab=2000, dim=64):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, dim, mode="max", include_last_offset=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, len(TEAMS)))

    def forward(self, ids, offsets):
        return self.mlp(self.bag(ids, offsets))


def fit(model, tickets, epochs=2):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for ids, offsets, team in tickets.batches(64):
            loss = F.cross_entropy(model(ids, offsets), team)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


class Service:
    def __init__(self, model, workers=2):
        self.model = model.eval()
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="route")

    @torch.inference_mode()
    def route(self, ids):
        start = torch.zeros(1, dtype=torch.long)
        return TEAMS[self.model(ids, start).argmax(1)]

    def submit(self, ids):
        return self.pool.submit(self.route, ids)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Router()
    fit(model, Tickets())
    service = Service(model)
    for n, future in enumerate([service.submit(ids) for ids in Tickets(8, seed=1).ids]):
        print(f"ticket {n}: {future.result()}", flush=True)


if __name__ == "__main__":
    main()
