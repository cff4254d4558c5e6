"""Uploads windows of sensor readings through one pinned staging buffer."""

from __future__ import annotations

import torch
from torch import Tensor

WINDOW = 1 << 20
COUNT = 6


class Uploader:
    """Moves windows of readings to the device."""

    def __init__(self) -> None:
        self.staging = torch.empty(WINDOW, pin_memory=True)
        self.windows = [torch.empty(WINDOW, device="cuda") for _ in range(COUNT)]

    def upload(self, index: int, readings: Tensor) -> Tensor:
        """Send one window to its slot on the device."""
        self.staging.copy_(readings)
        return self.windows[index].copy_(self.staging, non_blocking=True)


def calibrate(window: Tensor) -> Tensor:
    """Filter a window; takes a while on the device."""
    torch.cuda._sleep(300_000_000)
    return window.sum(dtype=torch.float64)


def main() -> None:
    """Upload all windows and compare their sums with the host's."""
    uploader = Uploader()
    calibrate(uploader.windows[0]).item()
    readings = [torch.full((WINDOW,), float(i + 1)) for i in range(COUNT)]
    sums = [calibrate(uploader.upload(i, window)) for i, window in enumerate(readings)]
    for i, (window, total) in enumerate(zip(readings, sums, strict=True)):
        expected = window.sum(dtype=torch.float64).item()
        if total.item() != expected:
            raise RuntimeError(f"window {i}: sum {total.item()} on the device, {expected} on the host")
    print("all windows arrived")


if __name__ == "__main__":
    main()
