"""Fills a cache and then asks for more than the process may have: failed_allocation.py torch|bytes."""

import resource
import sys

import torch

kept = []


def cache():
    for _ in range(12):
        kept.append(torch.zeros(2 << 20))  # 8 MiB


def grow():
    if sys.argv[1] == "torch":
        return torch.empty(1 << 28)
    return bytearray(1 << 30)


cache()
with open("/proc/self/statm", encoding="ascii") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
grow()
