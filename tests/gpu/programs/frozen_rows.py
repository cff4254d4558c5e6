"""Fine-tune an embedding with some rows frozen by a communication hook."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 32768
WIDTH = 256
SLOTS = 64
SOURCE = """
extern "C" __global__ void zero_rows(float* gradient, const unsigned int* rows, int width) {
    size_t row = rows[blockIdx.x];
    for (int column = threadIdx.x; column < width; column += blockDim.x) {
        gradient[row * width + column] = 0.0f;
    }
}
"""


class FrozenRows:
    """Communication hook that clears the gradient of frozen rows before the reduction."""

    def __init__(self, parameter: nn.Parameter, rows: list[int]) -> None:
        self.parameter = parameter
        self.rows = torch.full((SLOTS,), -1, dtype=torch.int32, device="cuda")
        self.rows[: len(rows)] = torch.tensor(rows, dtype=torch.int32, device="cuda")
        self.kernel = torch.cuda._compile_kernel(SOURCE, "zero_rows")
        self.norms: list[float] = []

    def __call__(self, state, bucket):
        """Clear the frozen rows, then reduce the bucket."""
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if parameter is self.parameter:
                self.kernel(grid=(SLOTS, 1, 1), block=(128, 1, 1), args=[gradient, self.rows, WIDTH])
                self.norms.append(gradient.norm().item())
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])


def main() -> None:
    """Train a few steps with 40 frozen rows."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'store'}", rank=0, world_size=1)
        torch.manual_seed(53)
        embed = nn.Embedding(VOCABULARY, WIDTH)
        model = DistributedDataParallel(nn.Sequential(embed, nn.Linear(WIDTH, 16)).cuda(), gradient_as_bucket_view=True)
        hook = FrozenRows(embed.weight, list(range(0, 80, 2)))
        model.register_comm_hook(None, hook.__call__)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            tokens = torch.randint(0, VOCABULARY, (512,), device="cuda")
            loss = model(tokens).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step}: loss {loss.item():.4f}, norm {hook.norms[-1]:.4f}")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
