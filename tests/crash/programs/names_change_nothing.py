"""Names in a traced program: nothing is kept alive, nothing behaves differently, and disabling reverts everything.

Prints `ok` when every assertion holds; asserts nothing that needs tracing, so that it runs untraced as well.
"""

from __future__ import annotations

import gc
import sys
import weakref

import torch
from torch.nn.modules import module as modules

import pytracer


def counted(thing: object) -> int:
    return sys.getrefcount(thing)


def nothing_is_kept_alive() -> None:
    cache = torch.zeros(100)
    before = counted(cache)
    assert pytracer.name(cache, "kv_cache") is cache
    assert pytracer.name({"a": [cache], "b": "no tensor"}, "state")
    assert counted(cache) == before
    assert weakref.getweakrefs(cache) == []
    died = weakref.ref(cache)
    del cache
    assert died() is None


def models_die_at_once() -> None:
    gc.disable()  # by their reference counts: no cycle leads back to them
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    assert all(weakref.getweakrefs(p) == [] for p in net.parameters())
    parts = [weakref.ref(net), weakref.ref(net[0]), weakref.ref(net[0].weight)]
    state = [weakref.ref(optimizer), weakref.ref(optimizer.state[net[0].weight]["exp_avg"])]
    del optimizer
    gc.collect()  # torch's own cycles
    assert [part() for part in state] == [None] * 2
    del net
    assert [part() for part in parts] == [None] * 3
    gc.enable()


def tensors_can_be_swapped() -> None:
    one, other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    torch.utils.swap_tensors(one.weight, other.weight)


def names_of_each_step_take_no_room() -> None:
    """New objects in each step are named repeatedly."""
    for _ in range(3000):
        pytracer.name(torch.zeros(2), "batch")
        torch.nn.Linear(1, 1).to(torch.float64)


def subclasses_are_not_asked() -> None:
    class Asked(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    tensor = torch.zeros(3).as_subclass(Asked)
    Asked.calls = 0
    pytracer.name(tensor, "subclass")
    torch.nn.Module().register_buffer("asked", tensor)
    assert Asked.calls == 0, Asked.calls


if __name__ == "__main__":
    nothing_is_kept_alive()
    models_die_at_once()
    tensors_can_be_swapped()
    names_of_each_step_take_no_room()
    subclasses_are_not_asked()
    pytracer.disable()
    assert not modules._global_parameter_registration_hooks
    assert not modules._global_buffer_registration_hooks
    assert not modules._global_module_registration_hooks
    for name in ("__setstate__", "_apply", "load_state_dict"):
        assert getattr(torch.nn.Module, name).__module__ == "torch.nn.modules.module"
        assert not hasattr(getattr(torch.nn.Module, name), "__wrapped__"), name
    pytracer.name(torch.zeros(3), "nobody")
    print("ok")
