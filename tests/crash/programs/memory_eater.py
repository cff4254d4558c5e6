"""Allocates memory until it is killed, at most 1 GiB: memory_eater.py [SECONDS]."""

import sys
import time

time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
taken = []
for _ in range(1024):
    taken.append(b"x" * (1 << 20))
    time.sleep(0.002)
