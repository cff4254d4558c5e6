"""Data parallel training with a captured probe of the gradient's norm."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 4096
BATCH = 256


class NormProbe:
    """Norm of one gradient, captured once and replayed in every step."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter
        self.value = torch.zeros((), device="cuda")
        self.measure()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.measure()

    def measure(self) -> None:
        """Write the norm into the static value."""
        self.value.copy_(torch.linalg.vector_norm(self.parameter.grad))

    def read(self) -> float:
        """Replay the probe and return its value."""
        self.graph.replay()
        return self.value.item()


def main() -> None:
    """Train a projection for a few steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.cuda.set_device(0)
    torch.manual_seed(17)
    model = nn.Linear(WIDTH, WIDTH, bias=False).cuda()
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    generator = torch.Generator(device="cuda").manual_seed(rank)
    probe: NormProbe | None = None
    for step in range(5):
        inputs = torch.randn(BATCH, WIDTH, device="cuda", generator=generator)
        optimizer.zero_grad(set_to_none=False)
        loss = (ddp(inputs) - inputs).square().mean()
        loss.backward()
        torch.cuda.empty_cache()
        if probe is None:
            probe = NormProbe(model.weight)
        norm = probe.read()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: gradient norm {norm:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
