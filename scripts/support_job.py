"""The job of scripts/support_matrix.py: three steps of DDP over gloo, one rank on the CPU.

    python scripts/support_job.py          prints the losses
    python scripts/support_job.py crash    in the last backward pass, reads a gradient in a bucket that DDP has released
    python scripts/support_job.py graph    reads an activation that only the autograd graph holds; its page is closed

Needs neither a compiler nor a network. DDP puts both parameters into one bucket at first, and into two once it knows
the order in which gradients are ready. The C library unmaps the first one when it is released, and maps the new one of
the large parameter, which is 0.8 MB smaller, at the upper end of the same hole: nothing is left at the lower end.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


class Model(nn.Module):  # type: ignore[misc]
    """The parameter whose gradient is ready last is registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(3200, 3200, bias=False)  # 41 MB
        self.encoder = nn.Linear(64, 3200, bias=False)  # 0.8 MB

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.decoder(self.encoder(inputs))
        return hidden


class LookAtGradient(torch.autograd.Function):  # type: ignore[misc]
    """Passes activations through; on the way back it reads a gradient by its address."""

    @staticmethod
    def forward(ctx, activations: torch.Tensor, addr: int) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.addr = addr
        return activations.view_as(activations)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):  # type: ignore[no-untyped-def]
        if ctx.addr:
            ctypes.string_at(ctx.addr, 8)  # it dies here
        return gradient, None


def read_activation() -> None:
    """The node that saved it is behind the second edge of another one."""
    hidden = torch.ones(256, 256, requires_grad=True) * 2
    addr = hidden.data_ptr() + 2 * mmap.PAGESIZE
    total = torch.ones(256, 256, requires_grad=True).neg() + hidden * hidden.exp()
    del hidden
    closed = ctypes.CDLL(None).mprotect(ctypes.c_void_p(addr & -mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0)
    assert closed == 0
    ctypes.string_at(addr, 8)
    total.sum().backward()


def main() -> None:
    if sys.argv[1:] == ["graph"]:
        read_activation()
    crash = sys.argv[1:] == ["crash"]
    torch.set_num_threads(1)
    torch.manual_seed(7)
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
        model = DistributedDataParallel(Model(), gradient_as_bucket_view=True)  # first buckets
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        addr = 0
        for _ in range(STEPS):
            predicted = model(torch.randn(4, 64))
            loss = LookAtGradient.apply(predicted, addr).square().mean()
            loss.backward()
            if crash:
                addr = addr or model.module.decoder.weight.grad.data_ptr()  # the bug: it is kept
            optimizer.step()
            optimizer.zero_grad()
            print(float(loss.detach()).hex(), flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
