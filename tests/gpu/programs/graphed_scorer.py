import torch
import torch.nn as nn

torch.manual_seed(9)
DEVICE = "cuda"
BATCH, DIM = 8192, 2048


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(DIM))
        self.register_buffer("std", torch.ones(DIM))
        self.head = nn.Linear(DIM, 16)

    def forward(self, x):
        x = (x - self.mean) / self.std
        return self.head(x)


class GraphedScorer:
    def __init__(self, model):
        self.model = model
        self.graph = torch.cuda.CUDAGraph()
        self.scores = None

    def build(self, example):
        x = example.to(DEVICE)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.model(x)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self.scores = self.model(x)
        return self.scores.shape

    def __call__(self):
        self.graph.replay()
        return self.scores


@torch.no_grad()
def benchmark():
    model = Scorer().to(DEVICE).eval()
    scorer = GraphedScorer(model)
    shape = scorer.build(torch.randn(BATCH, DIM))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    out = scorer()
    end.record()
    end.synchronize()
    print(tuple(shape), begin.elapsed_time(end), torch.cuda.max_memory_allocated() >> 20)
    print(out.mean().item())


benchmark()
