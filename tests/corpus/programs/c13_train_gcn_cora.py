"""Two layer GCN on a citation graph (cora.content / cora.cites layout)."""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def write_cora(root, n=2708, n_edges=5429, n_words=143, seed=3):
    """Same layout as the tarball: '<paper id> <words> <label>' and '<cited> <citing>'."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(np.arange(35, 1155073), n, replace=False))
    words = rng.random((n, n_words)) < 0.02
    labels = rng.integers(0, 7, n)
    np.savez(os.path.join(root, "content.npz"), ids=ids, words=words, labels=labels)
    cites = ids[rng.integers(0, n, (n_edges, 2))]
    np.savetxt(os.path.join(root, "cora.cites"), cites, fmt="%d", delimiter="\t")


def load_cora(root):
    content = np.load(os.path.join(root, "content.npz"))
    x = torch.from_numpy(content["words"].astype(np.float32))
    y = torch.from_numpy(content["labels"])
    index = {int(p): i for i, p in enumerate(content["ids"])}
    cites = np.loadtxt(os.path.join(root, "cora.cites"), dtype=np.int64)
    rows = np.array([index[int(p)] for p in cites[:, 0]])
    cols = cites[:, 1]
    return x, y, build_adjacency(rows, cols, len(index))


def build_adjacency(rows, cols, n):
    order = np.lexsort((cols, rows))
    rows, cols = rows[order], cols[order]
    degree = np.bincount(rows, minlength=n)
    crow = np.concatenate([[0], np.cumsum(degree)])
    values = 1.0 / np.maximum(degree, 1)[rows]
    return torch.sparse_csr_tensor(torch.from_numpy(crow), torch.from_numpy(cols),
                                   torch.from_numpy(values).float(), size=(n, n))


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.lin = nn.Linear(in_features, out_features)

    def forward(self, x, adj):
        support = self.lin(x)
        return support + torch.sparse.mm(adj, support)


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout=0.5):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return self.gc2(x, adj)


def main():
    torch.manual_seed(42)
    root = tempfile.mkdtemp(prefix="cora_")
    write_cora(root)
    x, y, adj = load_cora(root)
    print(f"nodes {x.size(0)} features {x.size(1)} edges {adj.values().numel()}", flush=True)
    idx_train = torch.arange(140)
    model = GCN(x.size(1), 16, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(50):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, adj)[idx_train], y[idx_train])
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
