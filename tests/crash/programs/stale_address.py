"""Native code keeps the address of a tensor's memory; Python replaces or releases that memory; the address is read.

The argument is the way. 64 MiB at a time, so that the C library unmaps what is freed.
"""

import ctypes
import os
import sys

import torch

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.element.argtypes = [ctypes.c_void_p, ctypes.c_long]
library.element.restype = ctypes.c_float
WIDTH = 4096


def trained():
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, WIDTH)).sum().backward()
    return model, optimizer


def remember(tensor):
    return tensor.data_ptr(), tensor.numel() // 2


def replace_weights(way):
    tensor = torch.zeros(WIDTH, WIDTH)
    other = torch.ones(8)
    kept = remember(tensor)
    if way == "set":
        tensor.set_(other)
    if way == "resize":
        tensor.untyped_storage().resize_(0)
    if way == "grow":
        tensor.resize_(2 * WIDTH, WIDTH)
    if way == "data":
        tensor.data = other
    if way == "swap":
        torch.utils.swap_tensors(tensor, other)
        del other
    if way == "share":
        tensor.share_memory_()
    if way == "drop":
        tensor = None
    return kept


def keep_gradient(way):
    model, optimizer = trained()
    kept = remember(model.weight.grad)
    if way == "zero_grad":
        optimizer.zero_grad()
    if way == "module_zero_grad":
        model.zero_grad()
    if way == "grad_none":
        model.weight.grad = None
    return kept


def convert(way):
    model, _ = trained()
    kept = remember(model.weight)
    if way == "to":
        model.to(torch.bfloat16)
    if way == "assign":
        model.load_state_dict({"weight": torch.ones(WIDTH, WIDTH)}, assign=True)
    return kept


def main(way):
    for act, ways in (
        (replace_weights, ("set", "resize", "grow", "data", "swap", "share", "drop")),
        (keep_gradient, ("zero_grad", "module_zero_grad", "grad_none")),
        (convert, ("to", "assign")),
    ):
        if way in ways:
            address, index = act(way)
            library.element(address, index)


main(sys.argv[1])
