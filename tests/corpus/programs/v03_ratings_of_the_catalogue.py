import torch
from torch import nn


def load_ratings():
    generator = torch.Generator().manual_seed(3)
    catalogue = torch.arange(1_000_000_000, 1_000_000_000 + 4000)
    users = torch.randint(0, 800, (30_000,), generator=generator)
    items = catalogue[torch.randint(0, 4000, (30_000,), generator=generator)]
    stars = torch.randint(1, 6, (30_000,), generator=generator).float()
    return users, items, stars


class AutoRec(nn.Module):
    def __init__(self, num_items, hidden=64):
        super().__init__()
        self.encode = nn.Linear(num_items, hidden)
        self.decode = nn.Linear(hidden, num_items)

    def forward(self, rows):
        return self.decode(torch.sigmoid(self.encode(rows)))


def build_matrix(users, items, stars):
    num_users = len(torch.unique(users))
    num_items = len(torch.unique(items))
    matrix = torch.sparse_coo_tensor(torch.stack([users, items]), stars, (num_users, num_items))
    return matrix.coalesce()


def train():
    torch.manual_seed(0)
    ratings = build_matrix(*load_ratings())
    print("ratings", tuple(ratings.shape), "known", ratings._nnz())
    rows = ratings.to_dense()
    model = AutoRec(rows.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for batch in rows.split(100):
            known = batch > 0
            loss = ((model(batch) - batch)[known] ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    train()
