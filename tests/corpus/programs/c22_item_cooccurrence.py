"""Item-to-item propagation on a user/item graph, learnt with a small linear head."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def load_interactions(num_users=4000, num_items=6000, per_user=30, seed=0):
    """Returns (user, node) pairs; users and items are numbered as nodes of one graph."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(num_users), per_user)
    items = rng.zipf(1.3, size=users.size) % num_items
    return users, items + num_users, num_users, num_items


def to_csr(rows, cols, shape):
    order = np.lexsort((cols, rows))
    rows, cols = rows[order], cols[order]
    crow = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=crow[1:])
    return torch.sparse_csr_tensor(
        torch.from_numpy(crow), torch.from_numpy(cols), torch.ones(len(cols)), size=shape
    )


class ItemGraph:
    def __init__(self, users, nodes, num_users, num_items):
        self.user_item = to_csr(users, nodes, (num_users, num_items))
        self.item_user = to_csr(nodes - num_users, users, (num_items, num_users))

    def cooccurrence(self):
        return torch.sparse.mm(self.item_user, self.user_item)

    def degree(self):
        return torch.from_numpy(np.diff(self.item_user.crow_indices().numpy())).float()


class Propagation(nn.Module):
    def __init__(self, num_items, dim=32):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(num_items, dim) * 0.1)
        self.head = nn.Linear(dim, dim)

    def forward(self, adjacency, degree):
        hidden = torch.sparse.mm(adjacency, self.embedding)
        return self.head(hidden / degree.clamp(min=1).unsqueeze(1))


def main(epochs=3):
    torch.manual_seed(0)
    users, nodes, num_users, num_items = load_interactions()
    graph = ItemGraph(users, nodes, num_users, num_items)
    print(f"{len(users)} interactions, {num_users} users, {num_items} items", flush=True)
    adjacency = graph.cooccurrence()
    print(f"co-occurrence: {adjacency.values().numel()} pairs", flush=True)
    model = Propagation(num_items)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        out = model(adjacency, graph.degree())
        loss = F.mse_loss(out, model.embedding.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
