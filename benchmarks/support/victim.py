"""Dies of a null pointer, large or with many threads, and stamps it: python victim.py FILE BYTES THREADS [torch] [core]

FILE is mapped and shared: the moment before the fault (CLOCK_MONOTONIC, ns), then the resident size in bytes. BYTES is
the size to grow to, by memory that is really written. With `core`, a core dump is allowed, otherwise none is taken.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import sys
import threading
import time
from pathlib import Path


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def use_torch() -> None:
    """One small training step: libraries, thread pool and autograd are there, as in a job."""
    import torch

    model = torch.nn.Linear(512, 512)
    model(torch.randn(512, 512)).square().mean().backward()


def grow(to_bytes: int) -> mmap.mmap | None:
    missing = to_bytes - resident_bytes()
    if missing <= 0:
        return None
    memory = mmap.mmap(-1, missing, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, missing)
    return memory


def main() -> None:
    file, nbytes, threads, *words = sys.argv[1:]
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1] if "core" in words else 0
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
    # If memory runs out, the OOM killer must choose this process.
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with open(file, "r+b") as opened:
        shared = mmap.mmap(opened.fileno(), 16)
    moment, resident = ctypes.c_uint64.from_buffer(shared), ctypes.c_uint64.from_buffer(shared, 8)
    for _ in range(int(threads) - 1):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if "torch" in words:
        use_torch()
    kept = grow(int(nbytes))
    resident.value = resident_bytes()
    fault, clock = ctypes.memset, time.monotonic_ns
    moment.value = clock()
    fault(0, 0, 1)
    sys.exit(f"the victim lives, with {kept}")


if __name__ == "__main__":
    main()
