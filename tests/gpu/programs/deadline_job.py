"""Runs a simulation on the device under a deadline."""

from __future__ import annotations

import os
import signal
import threading

import torch


def start_deadline(seconds: float) -> threading.Timer:
    """End the process when the deadline has passed."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()
    return timer


def simulate(steps: int) -> float:
    """Advance the state and return its mean."""
    state = torch.ones(1 << 16, device="cuda")
    for _ in range(steps):
        torch.cuda._sleep(500_000_000)
        state.mul_(1.01)
    return state.mean().item()


def main() -> None:
    """Simulate many steps."""
    torch.zeros(1, device="cuda").item()
    timer = start_deadline(3.0)
    print("mean", simulate(60))
    timer.cancel()


if __name__ == "__main__":
    main()
