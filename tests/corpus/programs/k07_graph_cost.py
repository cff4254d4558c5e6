"""Rough operator cost table for scripted models."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.proj(x))


class Pool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.proj(x)).mean(1)


class CostTable:
    KINDS = ("aten::sigmoid", "aten::mul", "aten::relu", "aten::mean")

    def __init__(self):
        self.rows = []

    def add(self, name, module):
        scripted = torch.jit.freeze(torch.jit.script(module.eval()))
        for kind in self.KINDS:
            self.rows.append((name, kind, self.shape_nodes(scripted.graph, kind)))

    @staticmethod
    def shape_nodes(graph, kind):
        node = graph.findNode(kind)
        shape_graph = torch._C._jit_shape_compute_graph_for_node(node)
        if shape_graph is None:
            return 0
        return len(list(shape_graph.nodes()))

    def show(self):
        for name, kind, count in self.rows:
            print(f"{name:8s} {kind:16s} {count:4d}", flush=True)


def main():
    table = CostTable()
    for name, module in (("gate", Gate(32)), ("pool", Pool(32))):
        table.add(name, module)
        table.show()


if __name__ == "__main__":
    main()
