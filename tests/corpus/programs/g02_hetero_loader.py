"""Neighbour sampling over a small heterogeneous risk graph (items f, sellers a, features b)."""
import torch
from torch import nn

NUM_NODES = {"f": 4000, "a": 2500, "b": 1200}
FIRST_ID = {"f": 0, "a": 10_000_000, "b": 20_000_000}
EDGE_TYPES = [("f", "A", "b"), ("b", "A_1", "f"), ("f", "G", "a"), ("a", "G_1", "f"), ("b", "H", "a")]


def read_edges(edge_type, n_edges, gen):
    src, _, dst = edge_type
    rows = torch.randint(NUM_NODES[src], (n_edges,), generator=gen) + FIRST_ID[src]
    cols = torch.randint(NUM_NODES[dst], (n_edges,), generator=gen) + FIRST_ID[dst]
    return torch.stack([rows, cols])


class HeteroGraph:
    def __init__(self, feat_dim=32, seed=7):
        gen = torch.Generator().manual_seed(seed)
        self.x = {t: torch.randn(n, feat_dim, generator=gen) for t, n in NUM_NODES.items()}
        self.y = torch.randint(2, (NUM_NODES["f"],), generator=gen)
        self.edge_index = {}
        for edge_type in EDGE_TYPES:
            edges = read_edges(edge_type, 20_000, gen)
            src, rel, dst = edge_type
            edges[0] -= FIRST_ID[src]
            if rel != "H":
                edges[1] -= FIRST_ID[dst]
            self.edge_index[edge_type] = edges


def index2ptr(index, size):
    return torch._convert_indices_from_coo_to_csr(index, size, out_int32=False)


def to_csc(edge_index, num_dst):
    row, col = edge_index
    col, perm = torch.sort(col)
    return index2ptr(col, num_dst), row[perm]


class NeighborLoader:
    def __init__(self, data, num_neighbors, batch_size):
        self.data, self.k, self.batch_size = data, num_neighbors, batch_size
        self.csc = {}
        for edge_type, edge_index in data.edge_index.items():
            self.csc[edge_type] = to_csc(edge_index, data.x[edge_type[2]].size(0))
            print("indexed", edge_type, tuple(edge_index.shape), flush=True)

    def sample(self, edge_type, nodes):
        colptr, row = self.csc[edge_type]
        start, deg = colptr[nodes], (colptr[nodes + 1] - colptr[nodes]).clamp(min=1)
        offs = (torch.rand(nodes.numel(), self.k) * deg[:, None]).long()
        return row[(start[:, None] + offs).clamp(max=row.numel() - 1)]

    def __iter__(self):
        for nodes in torch.randperm(NUM_NODES["f"]).split(self.batch_size):
            neigh = {t: self.data.x[t[0]][self.sample(t, nodes)].mean(1) for t in self.csc if t[2] == "f"}
            yield self.data.x["f"][nodes], neigh, self.data.y[nodes]


class HeteroSAGE(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.lin_self = nn.Linear(dim, hidden)
        self.lin_nbr = nn.ModuleDict({"A_1": nn.Linear(dim, hidden), "G_1": nn.Linear(dim, hidden)})
        self.out = nn.Linear(hidden, 2)

    def forward(self, x, neigh):
        h = self.lin_self(x) + sum(self.lin_nbr[t[1]](v) for t, v in neigh.items())
        return self.out(h.relu())


def main():
    data = HeteroGraph()
    model = HeteroSAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = NeighborLoader(data, num_neighbors=10, batch_size=256)
    for epoch in range(3):
        for x, neigh, y in loader:
            loss = nn.functional.cross_entropy(model(x, neigh), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
