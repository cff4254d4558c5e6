"""A forked child uses memory that its parent freed before: both stay guarded. Prints how the child ended."""

import ctypes
import os

import torch

cache = torch.ones(4096)
kept = [torch.full((1000,), float(i)) for i in range(50)]
address = cache.data_ptr()


def release():
    global cache
    cache = None


release()
child = os.fork()
if child == 0:
    more = [torch.full((1000,), -float(i)) for i in range(50)]
    assert all(int(x[0]) == i for i, x in enumerate(kept))
    assert all(int(x[0]) == -i for i, x in enumerate(more))
    value = (ctypes.c_float * 4).from_address(address)[2]
    os._exit(0)
more = [torch.full((1000,), float(i * 2)) for i in range(50)]
assert all(int(x[0]) == i for i, x in enumerate(kept))
assert all(int(x[0]) == 2 * i for i, x in enumerate(more))
print("child", os.waitpid(child, 0)[1], flush=True)
