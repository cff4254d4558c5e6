"""A storage with a name, or with a reference to it, and a fault at a known byte of it.

    named_storage.py CASE

The page of that byte is made inaccessible and then read, so that the fault is a real one in a live storage; freed
storages are so large that the allocator unmaps them. The test has the expected result of each case.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import mmap
import os
import sys
import weakref
from typing import Any

import torch

import pytracer

OFFSET = 3 * mmap.PAGESIZE + 40
SIDE = 128  # a Linear of this side has 64 KiB of weights
HUGE = 3300  # above 32 MiB: always a mapping of its own, gone when freed
_libc = ctypes.CDLL(None, use_errno=True)


def fault_in(tensor: torch.Tensor) -> None:
    """Reads byte OFFSET of the tensor's elements after its page was made inaccessible."""
    fault_at(tensor.data_ptr() + OFFSET, take_away=True)


def fault_at(addr: int, *, take_away: bool = False) -> None:
    """Reads the byte at `addr`. Only numbers are passed: nothing here holds a tensor."""
    print(hex(addr), flush=True)
    if take_away:
        page = ctypes.c_void_p(addr & -mmap.PAGESIZE)
        assert _libc.mprotect(page, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0, os.strerror(ctypes.get_errno())
    ctypes.string_at(addr, 1)


class Net(torch.nn.Module):
    """Two layers, a buffer, and tensors that are not registered."""

    def __init__(self, side: int = SIDE) -> None:
        super().__init__()
        self.first = torch.nn.Linear(side, side)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(side, side)])
        self.register_buffer("seen", torch.zeros(side, side))
        self.cache = torch.zeros(side, side)
        self.caches = [torch.zeros(side, side), torch.zeros(side, side)]

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.first(batch)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden

    def look_up(self, at: int) -> None:
        """Faults in a tensor referenced by an attribute only."""
        fault_at((self.cache if at < 0 else self.caches[at]).data_ptr() + OFFSET, take_away=True)


def trained(net: torch.nn.Module, steps: int = 2, side: int = SIDE, **options: bool) -> torch.optim.Optimizer:
    """Some steps of Adam."""
    optimizer = torch.optim.Adam(net.parameters(), **options)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2, side)).sum().backward()
        optimizer.step()
    return optimizer


def cloned(state: Any) -> Any:
    """As torch.load returns it: the same values in other storages."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, state)


def parameter() -> None:
    net = Net()
    fault_in(net.layers[0].weight)


def buffer() -> None:
    net = Net()
    fault_in(net.seen)


def buffer_with_new_data() -> None:
    """Its memory was replaced after it was recorded, without any hook being called."""
    net = Net()
    net.seen.data = torch.ones(SIDE, SIDE)
    fault_in(net.seen)


def buffer_that_was_replaced() -> None:
    """Past the module's __setattr__, as functional calls do."""
    net = Net()
    net._buffers["seen"] = torch.ones(SIDE, SIDE)
    fault_in(net.seen)


def gradient() -> None:
    net = Net()
    trained(net)
    fault_in(net.layers[0].weight.grad)


def gradient_of_this_step() -> None:
    """Not recorded before: created after the last step of the optimizer."""
    net = Net()
    optimizer = trained(net)
    optimizer.zero_grad()
    net(torch.ones(2, SIDE)).sum().backward()
    fault_in(net.first.weight.grad)


def optimizer_state() -> None:
    net = Net()
    optimizer = trained(net)
    fault_in(optimizer.state[net.layers[0].weight]["exp_avg_sq"])


def loaded_optimizer_state() -> None:
    net = Net()
    optimizer = trained(net)
    optimizer.load_state_dict(cloned(optimizer.state_dict()))
    fault_in(optimizer.state[net.layers[0].weight]["exp_avg"])


def parameter_of_no_module() -> None:
    weight = torch.zeros(SIDE, SIDE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    fault_in(optimizer.state[weight]["momentum_buffer"])


def user_name() -> None:
    cache = torch.zeros(SIDE, SIDE)
    assert pytracer.name(cache, "kv_cache") is cache
    fault_in(cache)


def user_name_in_dict() -> None:
    state = {"layers": [torch.zeros(3), torch.zeros(SIDE, SIDE)], "size": 3}
    pytracer.name(state, "state")
    fault_in(state["layers"][1])


def user_name_of_dead_object() -> None:
    """The name belongs to the storage: the named view is destroyed, the memory stays."""
    whole = torch.zeros(SIDE, SIDE)
    pytracer.name(whole.view(-1), "flat cache")
    gc.collect()
    fault_in(whole)


def wrapped() -> None:
    """DistributedDataParallel's children are named without it."""
    net = ddp(Net())
    fault_in(net.module.layers[0].weight)


def ddp(net: torch.nn.Module, **options: bool) -> torch.nn.Module:
    """A job of one rank."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return torch.nn.parallel.DistributedDataParallel(net, **options)


def gradient_in_bucket() -> None:
    net = ddp(Net(), gradient_as_bucket_view=True)
    trained(net)
    fault_in(net.module.layers[0].weight.grad)


def moved_buffer() -> None:
    """to() replaces the objects of buffers."""
    net = Net().to(torch.float64)
    fault_in(net.seen)


def moved_parameter() -> None:
    net = Net()
    net.to(torch.float64)
    fault_in(net.layers[0].weight)


def before_the_move() -> None:
    """A stale pointer into the storage that the parameter had before."""
    net = Net(HUGE)
    addr = net.layers[0].weight.data_ptr() + OFFSET
    net.to(torch.bfloat16)
    fault_at(addr)


def swapped() -> None:
    """torch refuses to swap tensors that have weak references."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    net = Net().to(torch.float64)
    fault_in(net.layers[0].weight)


def loaded() -> None:
    net = Net()
    net.load_state_dict(cloned(net.state_dict()))
    fault_in(net.layers[0].weight)


def loaded_by_assignment() -> None:
    net = Net()
    net.load_state_dict(cloned(net.state_dict()), assign=True)
    fault_in(net.layers[0].weight)


def new_data() -> None:
    """`.data =` without a later update; the handler updates the address."""
    net = Net()
    net.layers[0].weight.data = torch.ones(SIDE, SIDE)
    fault_in(net.layers[0].weight)


def copied() -> None:
    """deepcopy registers nothing."""
    net = copy.deepcopy(Net())
    fault_in(net.layers[0].weight)


def gradient_that_was_freed() -> None:
    """zero_grad() frees gradients; a pointer into one remains."""
    net = Net(HUGE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, HUGE)).sum().backward()
    optimizer.step()
    addr = net.layers[0].weight.grad.data_ptr() + OFFSET
    optimizer.zero_grad(set_to_none=True)
    fault_at(addr)


def parameter_of_dead_model() -> None:
    net = Net(HUGE)
    addr = net.layers[0].weight.data_ptr() + OFFSET
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None
    fault_at(addr)


def local() -> None:
    def step(kv_cache: torch.Tensor) -> None:
        fault_at(kv_cache.data_ptr() + OFFSET, take_away=True)

    step(torch.zeros(SIDE, SIDE))


def list_item() -> None:
    layers = [None, torch.zeros(SIDE, SIDE)]
    fault_at(layers[1].data_ptr() + OFFSET, take_away=True)


def dict_item() -> None:
    state = {"keys": torch.zeros(SIDE, SIDE), 7: torch.zeros(SIDE, SIDE)}
    fault_at(state["keys"].data_ptr() + OFFSET, take_away=True)


def cell() -> None:
    captured = torch.zeros(SIDE, SIDE)

    def inner() -> None:
        fault_at(captured.data_ptr() + OFFSET, take_away=True)

    inner()


TABLE = torch.zeros(SIDE, SIDE)


def module_global() -> None:
    fault_at(TABLE.data_ptr() + OFFSET, take_away=True)


def attribute() -> None:
    Net().look_up(-1)


def item_of_attribute() -> None:
    Net().look_up(1)


def view() -> None:
    """Another tensor of the same storage."""
    row = torch.zeros(4 * SIDE, SIDE)[2:]
    fault_at(row.data_ptr() + OFFSET, take_away=True)


class Keep(torch.autograd.Function):
    """Saves a tensor for backward that has no other reference."""

    @staticmethod
    def forward(ctx, batch):
        kept = batch * 2
        ctx.save_for_backward(kept)
        global address
        address = kept.data_ptr() + OFFSET
        return batch + 1

    @staticmethod
    def backward(ctx, gradient):
        fault_at(address, take_away=True)


address = 0


def saved_by_python() -> None:
    Keep.apply(torch.ones(SIDE, SIDE, requires_grad=True)).sum().backward()


def saved() -> None:
    """An activation that only the autograd graph keeps alive."""
    hidden = torch.ones(SIDE, SIDE, requires_grad=True) * 2
    addr = hidden.data_ptr() + OFFSET
    loss = (hidden * hidden.exp()).sum()
    del hidden
    fault_at(addr, take_away=True)
    loss.backward()


def saved_behind_the_second_edge() -> None:
    """The node that keeps it is found through the second edge of another one, and that one's first leads elsewhere."""
    hidden = torch.ones(SIDE, SIDE, requires_grad=True) * 2
    addr = hidden.data_ptr() + OFFSET
    loss = (torch.ones(SIDE, SIDE, requires_grad=True).neg() + hidden * hidden.exp()).sum()
    del hidden
    fault_at(addr, take_away=True)
    loss.backward()


def on_a_thread_without_python() -> None:
    """A raw thread has no Python frames: those of other threads are reported."""
    kv_cache = torch.zeros(SIDE, SIDE)
    addr = kv_cache.data_ptr() + OFFSET
    print(hex(addr), flush=True)
    page = ctypes.c_void_p(addr & -mmap.PAGESIZE)
    assert _libc.mprotect(page, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    thread = ctypes.c_ulong()
    strlen = ctypes.cast(_libc.strlen, ctypes.c_void_p)
    _libc.pthread_create(ctypes.byref(thread), None, strlen, ctypes.c_void_p(addr))
    _libc.pthread_join(thread, None)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
