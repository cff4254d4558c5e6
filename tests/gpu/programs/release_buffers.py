"""Release large buffers by hand between two phases."""

from __future__ import annotations

import ctypes

import torch


class Workspace:
    """Named buffers for the phases of a job."""

    def __init__(self) -> None:
        self.buffers: dict[str, torch.Tensor] = {}
        self.runtime = ctypes.CDLL("libcudart.so.13")

    def get(self, name: str, elements: int) -> torch.Tensor:
        """Return the buffer of this name, made at its first use."""
        if name not in self.buffers:
            self.buffers[name] = torch.zeros(elements, device="cuda")
        return self.buffers[name]

    def release(self, name: str) -> None:
        """Give the memory of a buffer back to the device at once."""
        address = ctypes.c_void_p(self.buffers[name].data_ptr())
        status = self.runtime.cudaFree(address)
        print(f"released {name}: status {status}")


def main() -> None:
    """Run two phases."""
    workspace = Workspace()
    scratch = workspace.get("scratch", 1 << 25)
    scratch += 1.0
    print(f"phase 1: {scratch.sum().item():.0f}")
    workspace.release("scratch")
    history = workspace.get("history", 1 << 16)
    history.fill_(0.5)
    scratch = workspace.get("scratch", 1 << 25)
    scratch.fill_(2.0)
    torch.cuda.synchronize()
    print("phase 2 done")


if __name__ == "__main__":
    main()
