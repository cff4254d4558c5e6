import torch
from torch import nn


class SumConv(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.Linear(2 * width, classes)

    def forward(self, x, source, target):
        messages = torch.relu(self.message(x))[source]
        total = torch.zeros_like(x).index_add(0, target, messages)
        return self.update(torch.cat([x, total], 1))


def make_graph(seed, nodes, edges):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 16, generator=generator)
    source = torch.randint(0, nodes, (edges,), generator=generator)
    target = torch.randint(1, nodes + 1, (edges,), generator=generator)
    labels = torch.randint(0, 4, (nodes,), generator=generator)
    return x, source, target, labels


def train(graphs):
    torch.manual_seed(0)
    model = torch.compile(SumConv(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(graphs):
        x, source, target, labels = make_graph(step, 500, 3000)
        loss = nn.functional.cross_entropy(model(x, source, target), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(3)
