"""Autograd nodes, named ranges, and steps of several optimizers; prints the expected result."""

import ctypes
import gc
import json
import sys
import threading
from pathlib import Path

import torch
from torch.autograd.profiler import record_function

import pytracer


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def nodes():
    x = torch.ones(4, requires_grad=True)
    y = (Doubled.apply(x) + 1).exp()
    z = y.sum()
    chain = [z.grad_fn]
    while chain[-1].next_functions and chain[-1].next_functions[0][0] is not None:
        chain.append(chain[-1].next_functions[0][0])
    numbers = [node._sequence_nr() for node in chain]
    pytracer.mark("only what is asked for")
    torch.autograd.grad(z, y, retain_graph=True)
    pytracer.mark("all")
    gradient = torch.ones(())
    z.backward(gradient)
    pytracer.mark("on another thread")
    other = threading.Thread(target=lambda: (x * 3).sum().backward())
    other.start()
    other.join()
    return {"numbers": numbers, "gradient": gradient.untyped_storage().data_ptr()}


def ranges():
    import torch.distributed as dist

    with record_function("before"):
        pass
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
    with record_function("after"):
        pass
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
    global_callbacks = bool(library._ZN2at18hasGlobalCallbacksEv() & 0xFF)  # at::hasGlobalCallbacks()
    dist.destroy_process_group()
    return {"global_callbacks": global_callbacks}


def made():
    return torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1)


def stepped(optimizer, times):
    for _ in range(times):
        optimizer.step()


def steps():
    first, second = made(), made()
    stepped(first, 3)
    stepped(second, 5)
    del first
    gc.collect()
    stepped(second, 2)  # counted from now on
    for _ in range(40):  # some have the address of the first one
        stepped(made(), 1)
    return {}


def failing():
    """An optimizer whose state cannot be read: its step is unchanged, and is counted."""

    class Odd(torch.optim.SGD):
        def __getattribute__(self, name):
            if name == "param_groups" and sys._getframe(1).f_code.co_filename.find("name_table") >= 0:
                raise RuntimeError("not for you")
            return super().__getattribute__(name)

    optimizer = Odd([torch.ones(4, requires_grad=True)], lr=0.1)
    stepped(optimizer, 6)
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
