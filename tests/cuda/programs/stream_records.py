"""Autograd on a side stream of the second device; a child forked with CUDA in use; then a fault on the host.

Prints the side stream's handle and the child's exit status.
"""

from __future__ import annotations

import ctypes
import os

import torch

import pytracer


def child() -> int:
    """Recording continues where CUDA can no longer be used."""
    pid = os.fork()
    if pid == 0:
        for _ in range(3):
            pytracer.mark("child")
            torch.ones(8).sum()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Read(torch.autograd.Function):
    """Native code of a backward node reads device memory."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        """Nothing."""
        return x * 1

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The fault."""
        ctypes.string_at(grad.data_ptr(), 4)
        return grad


def main() -> None:
    """The forward pass determines the stream of the backward pass."""
    side = torch.cuda.Stream("cuda:1")
    torch.ones(8, requires_grad=True).sum().backward()  # before CUDA is in use
    with torch.cuda.stream(side):
        weight = torch.ones(1 << 10, device="cuda:1", requires_grad=True)
        (weight * 2).sum().backward()
        print(hex(side.cuda_stream), child(), flush=True)
        Read.apply(weight).sum().backward()


if __name__ == "__main__":
    main()
