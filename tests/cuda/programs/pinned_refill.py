"""One pinned buffer for several copies; the first word says how the host waits before it fills it again."""

from __future__ import annotations

import sys

import torch

staging = torch.empty(1 << 16, pin_memory=True)
places = torch.empty(3, 1 << 16, device="cuda")
done = torch.cuda.Event()
for index in range(3):
    staging.fill_(index)
    places[index].copy_(staging, non_blocking=sys.argv[1] != "blocking")
    done.record()
    if sys.argv[1] == "event":
        done.synchronize()
    elif sys.argv[1] == "polled":
        while not done.query():
            pass
    elif sys.argv[1] == "device":
        torch.cuda.synchronize()
    elif sys.argv[1] == "accelerator":
        torch.accelerator.synchronize()
    elif sys.argv[1] == "anew":
        staging = torch.empty_like(staging, pin_memory=True)
raise RuntimeError("a row has the wrong sum")
