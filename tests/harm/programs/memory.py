"""Allocates the given number of MiB, under a batch system's limit of address space."""

import sys

print("took", len(bytearray(int(sys.argv[1]) << 20)) >> 20, "MiB")
