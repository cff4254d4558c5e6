"""A kernel's assertion fails: the driver prints it when the host waits, and CUDA's calls return only a number."""

from __future__ import annotations

import ctypes

import torch
from fake import control

ASSERTION = (
    b"/pytorch/aten/src/ATen/native/cuda/Loss.cu",
    245,
    b"nll_loss_forward_reduce_cuda_kernel_2d",
    3,
    b"t >= 0 && t < n_classes",
)


def main() -> None:
    """The loss of labels that are no classes."""
    logits = torch.zeros(8, 10, device="cuda")
    labels = torch.full((8,), 10, device="cuda")
    control("fault_in_next_kernel", 710)
    loss = torch.nn.functional.nll_loss(logits, labels)  # the cause
    ctypes.CDLL("libcuda.so.1").fakecuda_print_assertion(*ASSERTION)
    torch.cuda.synchronize()  # told here
    print(loss)


if __name__ == "__main__":
    main()
