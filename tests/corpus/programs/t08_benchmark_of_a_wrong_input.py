"""A model is measured by torch's ThroughputBenchmark with a batch that does not fit it: each of its threads calls the model."""

import torch
from torch.utils.throughput_benchmark import ThroughputBenchmark


def model():
    layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return torch.jit.script(layers)


def measure(module, batches):
    bench = ThroughputBenchmark(module)
    for batch in batches:
        bench.add_input(batch)
    return bench.benchmark(num_calling_threads=2, num_warmup_iters=2, num_iters=20)


print(measure(model(), [torch.randn(8, 16)]))
print(measure(model(), [torch.randn(8, 16), torch.randn(8, 24)]))
