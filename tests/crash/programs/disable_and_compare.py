"""Prints what enable() changes in a process with torch, before, during and after: disable_and_compare.py RUN."""

import ctypes
import hashlib
import json
import signal
import struct
import sys
from multiprocessing.process import BaseProcess

import torch
import torch.distributed as dist
import torch.multiprocessing.spawn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer

import pytracer

libc = ctypes.CDLL(None)
SA_RESTORER = 0x04000000
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)


def kernel_action(number):
    action = ctypes.create_string_buffer(256)
    assert libc.sigaction(number, None, action) == 0
    handler, mask, flags = struct.unpack_from("<QQ120xi", action)  # glibc's mask is longer than the kernel's
    return [handler, mask, flags & ~SA_RESTORER]


def state():
    return {
        "excepthook": id(sys.excepthook),
        "process_run": id(BaseProcess.run),
        "ddp": [id(DistributedDataParallel.__init__), id(DistributedDataParallel._pre_forward)],
        "init_process_group": id(dist.init_process_group),
        "spawn_wrap": id(sys.modules["torch.multiprocessing.spawn"]._wrap),
        "step_hooks": len(optimizer._global_optimizer_post_hooks),
        "actions": [kernel_action(number) for number in FAULTS],
    }


def train():
    net = nn.Linear(100, 100)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(torch.randn(10, 100)).sum().backward()
        sgd.step()


def content():
    (path,) = (directory / "boxes").glob("*.blackbox")
    return hashlib.sha256(path.read_bytes()).hexdigest()


before = state()
directory = pytracer.enable(sys.argv[1])
during = state()
empty = content()
kept = torch.ones(5000)
train()
full = content()
pytracer.disable()
after = state()
closed = content()
train()
del kept
pytracer.mark("nobody reads this")
pytracer.step(99)
still = content()
print(json.dumps({"before": before, "during": during, "after": after}))
print(json.dumps({"recorded": empty != full, "quiet": closed == still, "enabled": pytracer.is_enabled()}))
pytracer.enable(sys.argv[1])
again = torch.ones(6000)
train()
print(json.dumps({"resumed": content() != still, "enabled": pytracer.is_enabled()}), flush=True)
pytracer.disable()
ctypes.string_at(0)
