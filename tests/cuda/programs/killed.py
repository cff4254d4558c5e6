"""Allocates and frees on two threads until it is killed."""

from __future__ import annotations

import os
import signal
import threading
import time

import torch

kept = [torch.empty(1024, device="cuda") for _ in range(200)]


def churn() -> None:
    """Blocks of changing sizes."""
    mine: list[torch.Tensor] = []
    for i in range(1 << 30):
        mine.append(torch.empty(1 + i % 7000, device="cuda"))
        del mine[: max(0, len(mine) - 50)]


for _ in range(2):
    threading.Thread(target=churn, daemon=True).start()
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
