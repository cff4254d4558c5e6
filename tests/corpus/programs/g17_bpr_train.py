import multiprocessing as mp

import torch
import torch.nn as nn

N_USERS, N_ITEMS = 2000, 40000


class NegativeSampler(mp.Process):
    """Shuffles the interactions and draws negatives in the background."""

    def __init__(self, interactions, batch_size, batch_queue, epochs):
        super().__init__(daemon=True)
        self.interactions, self.batch_size = interactions, batch_size
        self.batch_queue, self.epochs = batch_queue, epochs

    def run(self):
        for _ in range(self.epochs):
            order = torch.randperm(self.interactions.size(0))
            for idx in order.split(self.batch_size):
                pos = self.interactions[idx]
                neg = torch.randint(0, N_ITEMS, (idx.numel(),))
                self.batch_queue.put((pos[:, 0].numpy(), pos[:, 1].numpy(), neg.numpy()))
            self.batch_queue.put(None)


class BPR(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(N_USERS, dim), nn.Embedding(N_ITEMS, dim)

    def forward(self, u, p, n):
        u = self.user(u)
        diff = (u * self.item(p)).sum(-1) - (u * self.item(n)).sum(-1)
        return -nn.functional.logsigmoid(diff).mean()


def load_interactions(n=120000):
    users = torch.randint(0, N_USERS, (n,))
    items = torch.randperm(n) % N_ITEMS
    return torch.stack([users, items], 1)


def train(epochs=2, batch_size=4096):
    torch.manual_seed(0)
    interactions = load_interactions()
    model = BPR()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch_queue = mp.Queue(maxsize=8)
    sampler = NegativeSampler(interactions, batch_size, batch_queue, epochs)
    sampler.start()
    print(f"{interactions.size(0)} interactions, sampler started", flush=True)
    for epoch in range(epochs):
        total, steps = 0.0, 0
        while (batch := batch_queue.get()) is not None:
            loss = model(*(torch.from_numpy(b) for b in batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        print(f"epoch {epoch}: bpr loss {total / steps:.4f}", flush=True)
    sampler.join()


if __name__ == "__main__":
    train()
