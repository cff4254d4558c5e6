import torch

torch.manual_seed(5)
USERS, ITEMS, EVENTS = 400000, 300, 30000


def load_events():
    users = torch.randint(0, USERS, (EVENTS,))
    items = torch.randint(0, ITEMS, (EVENTS,))
    order = torch.argsort(users * ITEMS + items)
    return users[order], items[order]


def keep_frequent(users, items, at_least):
    counts = torch.bincount(items, minlength=ITEMS)
    mask = counts[items] >= at_least
    return users[mask], items[mask]


def interaction_matrix(users, items):
    keys = torch.unique(users * ITEMS + items)
    idx = torch.stack([keys // ITEMS, keys % ITEMS])
    n = torch.unique(idx[0]).numel()
    return torch.sparse_coo_tensor(idx, torch.ones(idx.shape[1]), (n, ITEMS), is_coalesced=True)


class Factors(torch.nn.Module):
    def __init__(self, n, dim=16):
        super().__init__()
        self.users = torch.nn.Parameter(torch.randn(n, dim) * 0.1)
        self.items = torch.nn.Parameter(torch.randn(ITEMS, dim) * 0.1)

    def forward(self, seen):
        return ((seen @ self.items) * self.users).sum(1)


users, items = load_events()
users, items = keep_frequent(users, items, 90)
matrix = interaction_matrix(users, items)
print("users", matrix.shape[0], "interactions", matrix._nnz())
seen = matrix.to_sparse_csr()
model = Factors(matrix.shape[0])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = torch.nn.functional.softplus(-model(seen)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, float(loss))
