import torch
from torch.utils.data import DataLoader, Dataset


class CitationGraph:
    def __init__(self, papers, citations, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.papers = papers
        self.crow = torch.arange(0, papers * citations + 1, citations)
        self.col = torch.randint(0, papers, (papers * citations,), generator=gen)
        self.weight = torch.rand(papers * citations, generator=gen)
        self.features = torch.rand(papers, 32, generator=gen)

    def rows(self, first, last):
        """The adjacency of some papers, as a matrix of its own."""
        crow = self.crow[first : last + 1]
        begin, end = int(crow[0]), int(crow[-1])
        return torch.sparse_csr_tensor(
            crow,
            self.col[begin:end].clone(),
            self.weight[begin:end].clone(),
            size=(last - first, self.papers),
        )


class NeighbourMeans(Dataset):
    def __init__(self, graph, chunk):
        self.graph, self.chunk = graph, chunk

    def __len__(self):
        return self.graph.papers // self.chunk

    def __getitem__(self, i):
        a = self.graph.rows(i * self.chunk, (i + 1) * self.chunk)
        return a @ self.graph.features


def main():
    torch.manual_seed(0)
    graph = CitationGraph(papers=120_000, citations=40)
    order = [0, 29, 7, 12]
    loader = DataLoader(NeighbourMeans(graph, chunk=4000), batch_size=None, sampler=order, num_workers=1)
    for i, means in zip(order, loader):
        print("chunk", i, tuple(means.shape), round(float(means.mean()), 3), flush=True)


if __name__ == "__main__":
    main()
