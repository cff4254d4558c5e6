"""Graph classification, graphs of a batch concatenated (TU format)."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MoleculeDataset(Dataset):
    """Slices of the flat node and edge arrays, as the raw TU files store them."""

    def __init__(self, num_graphs=5000, feat_dim=64, seed=0):
        rng = np.random.default_rng(seed)
        self.node_slices, self.edges = [], []
        start = 0
        for _ in range(num_graphs):
            n = int(rng.integers(8, 24))
            self.edges.append(rng.integers(start, start + n, size=(2, 3 * n)))
            self.node_slices.append((start, start + n))
            start += n
        self.labels = rng.integers(0, 2, num_graphs)
        self.x = rng.standard_normal((start, feat_dim)).astype(np.float32)

    def __len__(self):
        return len(self.node_slices)

    def __getitem__(self, idx):
        begin, end = self.node_slices[idx]
        edge_index = torch.from_numpy(self.edges[idx])
        messages = torch.from_numpy(self.x[self.edges[idx][0]])
        return torch.from_numpy(self.x[begin:end]), edge_index, messages, int(self.labels[idx])


class Collater:
    """Concatenates the graphs and sums the messages of the neighbours."""

    def __call__(self, samples):
        x = torch.cat([s[0] for s in samples])
        dst = torch.cat([s[1][1] for s in samples])
        messages = torch.cat([s[2] for s in samples])
        sizes = torch.tensor([s[0].size(0) for s in samples])
        batch = torch.repeat_interleave(torch.arange(len(samples)), sizes)
        agg = torch.sparse_coo_tensor(dst.unsqueeze(0), messages, x.shape).coalesce()
        return x + agg, batch, torch.tensor([s[3] for s in samples])


class GIN(nn.Module):
    def __init__(self, in_dim=64, hidden=32):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(in_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.out = nn.Linear(hidden, 2)

    def forward(self, h, batch, num_graphs):
        h = self.mlp(h)
        pooled = h.new_zeros(num_graphs, h.size(1)).index_add(0, batch, h)
        return self.out(pooled)


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = MoleculeDataset()
    loader = DataLoader(dataset, batch_size=64, num_workers=1, collate_fn=Collater())
    model = GIN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        total = 0.0
        for step, (h, batch, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(h, batch, len(y)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
