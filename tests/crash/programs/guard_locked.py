"""Locks its memory after some storages were made, as low-latency services do; then uses one that was freed since."""

import ctypes

import torch

before = torch.ones(1024)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mlockall(1) == 0, ctypes.get_errno()
many = [torch.full((300,), float(i)) for i in range(100)]
assert all(int(t[0]) == i for i, t in enumerate(many))
stale, later = before.data_ptr(), many[7].data_ptr()


def release():
    global before
    before = None
    many.clear()


release()
again = [torch.full((300,), float(i)) for i in range(100)]
print("reading", flush=True)
print("finished", (ctypes.c_float * 4).from_address(stale)[2], flush=True)
