"""Releases a gated upload stream from the host."""

from __future__ import annotations

import torch
from torch import Tensor

SOURCE = """
extern "C" __global__ void wait_for_host(const int* gate) {
    volatile const int* value = gate;
    while (*value == 0) {
    }
}
"""


class GatedUploader:
    """Uploads batches after the host has opened the gate."""

    def __init__(self) -> None:
        self.gate = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self.kernel = torch.cuda._compile_kernel(SOURCE, "wait_for_host")
        self.stream = torch.cuda.Stream()
        self.done = torch.cuda.Event()

    def upload(self, host: Tensor, device: Tensor) -> None:
        """Queue the upload behind the gate."""
        with torch.cuda.stream(self.stream):
            self.kernel(args=[self.gate])
            device.copy_(host, non_blocking=True)
            self.done.record()

    def open(self) -> None:
        """Let the queued upload run."""
        self.gate.fill_(1)


def main() -> None:
    """Upload a batch, use it, and open the gate."""
    host = torch.ones(1 << 20, pin_memory=True)
    device = torch.zeros(1 << 20, device="cuda")
    print("mean before", device.mean().item())
    uploader = GatedUploader()
    uploader.upload(host, device)
    torch.cuda.current_stream().wait_event(uploader.done)
    mean = device.mean().tolist()
    uploader.open()
    print("mean after", mean)


if __name__ == "__main__":
    main()
