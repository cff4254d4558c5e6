"""A kernel fails; the host gets the error two lines later. With the word "core", the device writes a core dump first.

On the fake runtime tests/support/gpu_cores.py builds the dump in place of the driver.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

import torch
from fake import control

from tests.support.gpu_cores import faulting, halves


def dump(tensor: torch.Tensor) -> None:
    """Writes what the driver would, to the path in the launcher's variables."""
    assert os.environ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
    assert "skip_abort" not in os.environ["CUDA_COREDUMP_GENERATION_FLAGS"]
    path = os.environ["CUDA_COREDUMP_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    addr = tensor.data_ptr()
    faulting(*halves(addr + 4096), parameters=struct.pack("<QQ", 7, addr)).write(path)


def main() -> None:
    """The third kernel fails."""
    weight = torch.ones(1 << 20, device="cuda")
    weight.add_(1)
    control("fault_in_next_kernel", 700)
    weight.mul_(2)  # the cause
    if "core" in sys.argv:
        dump(weight)
    weight = weight[: 1 << 19]
    torch.cuda.synchronize()  # told here


if __name__ == "__main__":
    main()
