"""Train a message-passing model on simulation meshes and keep the validation frames for plotting."""
import argparse
import resource

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

_, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard_limit), hard_limit))


class MeshDataset(Dataset):
    def __init__(self, n_frames, n_nodes, seed):
        self.n_frames = n_frames
        self.n_nodes = n_nodes
        self.seed = seed

    def __len__(self):
        return self.n_frames

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(self.seed * 100003 + idx)
        n = self.n_nodes + int(torch.randint(0, 50, (1,), generator=g))
        pos = torch.rand(n, 2, generator=g)
        src = torch.arange(n).repeat_interleave(4)
        dst = (src + torch.randint(1, 12, (4 * n,), generator=g)) % n
        velocity = torch.stack([torch.sin(6 * pos[:, 1]), torch.cos(6 * pos[:, 0])], dim=1)
        target = velocity + 0.1 * torch.randn(n, 2, generator=g)
        return {"pos": pos, "edge_index": torch.stack([src, dst]), "velocity": velocity, "target": target}


def collate_graphs(graphs):
    return graphs


class MeshNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encode = nn.Linear(4, dim)
        self.message = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.decode = nn.Linear(dim, 2)

    def forward(self, graph):
        h = torch.relu(self.encode(torch.cat([graph["pos"], graph["velocity"]], dim=1)))
        src, dst = graph["edge_index"]
        msg = self.message(torch.cat([h[src], h[dst]], dim=1))
        h = h + torch.zeros_like(h).index_add_(0, dst, msg) / 4
        return self.decode(h)


def train_epoch(model, loader, optimizer):
    total, count = 0.0, 0
    for graphs in loader:
        loss = sum(nn.functional.mse_loss(model(g), g["target"]) for g in graphs) / len(graphs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        count += 1
    return total / count


@torch.no_grad()
def validate(model, loader):
    model.eval()
    frames, total = [], 0.0
    for graphs in loader:
        for graph in graphs:
            pred = model(graph)
            total += nn.functional.mse_loss(pred, graph["target"]).item()
            frames.append((graph, pred))
    model.train()
    return total / len(frames), frames


def worst_frames(frames, k=3):
    errors = torch.stack([(pred - graph["target"]).abs().mean() for graph, pred in frames])
    return torch.topk(errors, k).indices.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--train-frames", type=int, default=160)
    parser.add_argument("--val-frames", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    train_loader = DataLoader(MeshDataset(args.train_frames, args.nodes, seed=1), batch_size=4, shuffle=True,
                              num_workers=args.workers, collate_fn=collate_graphs)
    val_loader = DataLoader(MeshDataset(args.val_frames, args.nodes, seed=2), batch_size=4,
                            num_workers=args.workers, collate_fn=collate_graphs)
    model = MeshNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, optimizer)
        print(f"epoch {epoch}: train loss {loss:.4f}", flush=True)
        val_loss, frames = validate(model, val_loader)
        print(f"epoch {epoch}: val loss {val_loss:.4f}, worst frames {worst_frames(frames)}", flush=True)


if __name__ == "__main__":
    main()
