"""Molecule regression: keep all graphs in shared memory so that the workers do not copy them."""
import torch
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

mp.set_sharing_strategy("file_system")


def read_molecule(i):
    g = torch.Generator().manual_seed(i)
    n = 6 + i % 12
    return {
        "x": torch.randn(n, 9, generator=g),
        "edge_index": torch.randint(0, n, (2, 3 * n), generator=g),
        "y": torch.randn(1, generator=g),
    }


class SharedMolecules(Dataset):
    def __init__(self, size):
        self.graphs = []
        for i in range(size):
            graph = read_molecule(i)
            for value in graph.values():
                value.share_memory_()
            self.graphs.append(graph)
            if (i + 1) % 5000 == 0:
                print(f"preloaded {i + 1}/{size}", flush=True)

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def collate(graphs):
    xs, edges, offset, batch = [], [], 0, []
    for k, g in enumerate(graphs):
        xs.append(g["x"])
        edges.append(g["edge_index"] + offset)
        batch.append(torch.full((len(g["x"]),), k))
        offset += len(g["x"])
    return torch.cat(xs), torch.cat(edges, 1), torch.cat(batch), torch.cat([g["y"] for g in graphs])


class MPNN(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.inp, self.msg, self.out = nn.Linear(9, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)

    def forward(self, x, edge_index, batch, size):
        h = self.inp(x).relu()
        h = h + torch.zeros_like(h).index_add(0, edge_index[1], self.msg(h)[edge_index[0]])
        return self.out(torch.zeros(size, h.shape[1]).index_add(0, batch, h)).squeeze(1)


def main():
    dataset = SharedMolecules(30000)
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=2, collate_fn=collate)
    model = MPNN()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for x, edge_index, batch, y in loader:
            loss = (model(x, edge_index, batch, len(y)) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
