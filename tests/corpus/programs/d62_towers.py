"""Two tower recommender: session bags against product bags, trained on click pairs."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N_ACTIONS = 1500
N_BUCKETS = 20000
DIM = 32


class ClickLog:
    """Sessions are lists of action ids, products lists of 40 bit catalogue codes."""

    def __init__(self, n=4096, seed=11):
        rng = np.random.default_rng(seed)
        self.codes = rng.integers(1 << 32, 1 << 40, 5000)
        self.sessions = [rng.integers(0, N_ACTIONS, rng.integers(4, 20)) for _ in range(n)]
        self.products = [self.codes[rng.integers(0, 5000, rng.integers(2, 8))] for _ in range(n)]

    def __len__(self):
        return len(self.sessions)


class BagPacker:
    """Lays ragged id lists end to end for EmbeddingBag."""

    def __init__(self, capacity=1 << 15):
        self.ids = np.empty(capacity, dtype=np.int64)

    def pack(self, bags):
        lengths = np.fromiter((len(b) for b in bags), dtype=np.int64, count=len(bags))
        total = int(lengths.sum())
        if total > len(self.ids):
            self.ids = np.empty(2 * total, dtype=np.int64)
        np.concatenate(bags, out=self.ids[:total])
        offsets = np.zeros(len(bags), dtype=np.int64)
        np.cumsum(lengths[:-1], out=offsets[1:])
        return torch.from_numpy(self.ids[:total]), torch.from_numpy(offsets)


class SessionTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(N_ACTIONS, DIM, mode="mean")
        self.out = nn.Linear(DIM, DIM)

    def forward(self, ids, offsets):
        return F.normalize(self.out(self.bag(ids, offsets)), dim=-1)


class ProductTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(N_BUCKETS, DIM, mode="sum")
        self.out = nn.Linear(DIM, DIM)

    def forward(self, codes, offsets):
        return F.normalize(self.out(self.bag(codes % N_BUCKETS, offsets)), dim=-1)


class Trainer:
    def __init__(self, log):
        self.log = log
        self.packer = BagPacker()
        self.session, self.product = SessionTower(), ProductTower()
        self.params = list(self.session.parameters()) + list(self.product.parameters())
        self.opt = torch.optim.Adagrad(self.params, lr=0.05)

    def batches(self, size, seed):
        order = np.random.default_rng(seed).permutation(len(self.log))
        for i in range(0, len(order) - size + 1, size):
            rows = order[i : i + size]
            yield [self.log.sessions[j] for j in rows], [self.log.products[j] for j in rows]

    def step(self, loss):
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def warm_up(self, which, tower, head, target):
        total = 0.0
        for n, pair in enumerate(self.batches(256, seed=1), 1):
            bags = pair[which]
            y = torch.tensor([target(b) for b in bags], dtype=torch.float32)
            total += self.step(F.mse_loss(head(tower(*self.packer.pack(bags))).squeeze(1), y))
        return total / n

    @torch.no_grad()
    def recall(self, k=10):
        hits = seen = 0
        for sessions, products in self.batches(256, seed=2):
            s = self.session(*self.packer.pack(sessions))
            p = self.product(*self.packer.pack(products))
            top = (s @ p.T).topk(k, dim=1).indices
            hits += (top == torch.arange(len(s))[:, None]).any(1).sum().item()
            seen += len(s)
        return hits / seen

    def joint_epoch(self, epoch, temperature=0.1):
        total = 0.0
        for n, (sessions, products) in enumerate(self.batches(256, seed=10 + epoch), 1):
            s = self.session(*self.packer.pack(sessions))
            p = self.product(*self.packer.pack(products))
            logits = s @ p.T / temperature
            total += self.step(F.cross_entropy(logits, torch.arange(len(s))))
        return total / n


def main():
    torch.manual_seed(0)
    trainer = Trainer(ClickLog())
    head = nn.Linear(DIM, 1)
    loss = trainer.warm_up(0, trainer.session, head, lambda b: len(b) / 20)
    print(f"session tower warm-up: {loss:.4f}", flush=True)
    loss = trainer.warm_up(1, trainer.product, head, lambda b: len(b) / 8)
    print(f"product tower warm-up: {loss:.4f}", flush=True)
    print(f"recall@10 before training: {trainer.recall():.3f}", flush=True)
    for epoch in range(3):
        loss = trainer.joint_epoch(epoch)
        print(f"epoch {epoch}: loss {loss:.4f}, recall@10 {trainer.recall():.3f}", flush=True)


if __name__ == "__main__":
    main()
