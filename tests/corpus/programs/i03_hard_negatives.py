"""Contrastive retrieval with hard negatives, compiled train step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_ITEMS = 512
K = 16


class TwoTower(nn.Module):
    def __init__(self, num_users, num_items, dim=64):
        super().__init__()
        self.user = nn.Embedding(num_users, dim)
        self.item = nn.Embedding(num_items, dim)
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, users):
        u = F.normalize(self.user(users), dim=-1)
        v = F.normalize(self.item.weight, dim=-1)
        return self.scale * u @ v.t()


class HardNegativeLoss(nn.Module):
    """Keeps the K best scored wrong items of every user."""

    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, scores, positives, negatives):
        pos = scores.gather(1, positives.unsqueeze(1))
        hard = scores[negatives]
        hard = torch.relu(hard + 1.0).mean(dim=1)
        return (torch.relu(1.0 - pos) + hard.mean(dim=1, keepdim=True)).mean()


def mine(scores, positives, k):
    with torch.no_grad():
        masked = scores.scatter(1, positives.unsqueeze(1), float("-inf"))
        return masked.topk(k, dim=1).indices


def interactions(num_users, num_items, batch_size, steps):
    g = torch.Generator().manual_seed(3)
    for _ in range(steps):
        users = torch.randint(num_users, (batch_size,), generator=g)
        yield users, (users * 7) % num_items


def main():
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = TwoTower(2000, NUM_ITEMS)
    criterion = torch.compile(HardNegativeLoss(K))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    print("compiling the loss ...", flush=True)
    for step, (users, positives) in enumerate(interactions(2000, NUM_ITEMS, 128, 20)):
        scores = model(users)
        negatives = mine(scores, positives, K)
        loss = criterion(scores, positives, negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
