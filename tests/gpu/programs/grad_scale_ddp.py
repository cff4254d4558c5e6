"""Scale gradients in place with one kernel after DDP's reduction."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SOURCE = """
extern "C" __global__ void scale_grads(float4* grads, double factor, int n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 g = grads[i];
        float f = (float)factor;
        grads[i] = make_float4(g.x * f, g.y * f, g.z * f, g.w * f);
    }
}
"""


class GradScaler:
    """Scale all gradients that share a flat buffer."""

    def __init__(self) -> None:
        self.kernel = torch.cuda._compile_kernel(SOURCE, "scale_grads")

    def __call__(self, flat: torch.Tensor, factor: float) -> None:
        """Multiply the whole buffer behind a gradient."""
        count = flat.untyped_storage().nbytes()
        blocks = (count + 255) // 256
        self.kernel(grid=(blocks, 1, 1), block=(256, 1, 1), args=[flat, factor, count])
        torch.cuda.synchronize()


def main() -> None:
    """Train a wide layer on one rank."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.manual_seed(0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    module = nn.Linear(4096, 4096, bias=False).cuda()
    model = DistributedDataParallel(module, device_ids=[0], gradient_as_bucket_view=True, bucket_cap_mb=128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scale = GradScaler()
    for step in range(3):
        loss = model(torch.randn(64, 4096, device="cuda")).square().mean()
        loss.backward()
        scale(module.weight.grad, 0.5)
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
