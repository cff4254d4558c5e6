"""Two-hop neighbours of a part of a graph: the adjacency matrix is cut, then squared."""

import torch


def load_graph(nodes, edges):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    return torch.sparse_coo_tensor(index, torch.ones(edges), (nodes, nodes)).coalesce()


def part(graph, first, last):
    """The rows and columns first..last of a sparse matrix."""
    index, values = graph.indices(), graph.values()
    keep = ((index >= first) & (index < last)).all(0)
    size = last - first
    return torch.sparse_coo_tensor(index[:, keep], values[keep], (size, size))


def two_hops(graph):
    return torch.sparse.mm(graph, graph)


def main(nodes=4_000_000, parts=4):
    graph = load_graph(nodes, 2_000_000)
    step = nodes // parts
    for number in range(parts):
        cut = part(graph, number * step, (number + 1) * step)
        hops = two_hops(cut)
        print("part", number, "edges", cut._nnz(), "two hops", hops._nnz())


main()
