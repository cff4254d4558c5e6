"""A weight that FSDP gathered and has freed since, which the program keeps; and other tensors of that size."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime.gathered_weights import GatheredWeight, gathered_weight
from pytracer.decode.types.journal import Fact, Unit, UnitParameter
from pytracer.decode.types.snapshot import CallSite, Holder, Moment, PythonFrame, Storage
from pytracer.decode.types.storage_table import StorageTable

FSDP = "/usr/lib/python3/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param.py"
FREE = CallSite(PythonFrame("free_storage", FSDP, 1074))
MONITOR = """class Monitor:
    def __init__(self, model):
        self.weights = {}
        for name, block in model.named_children():
            block.register_forward_hook(self.tap(name))
    def tap(self, name):
        def hook(module, args, output):
            {fill}
        return hook
    def report(self):
        for w in {read}:
            print(w.norm())
"""
CLOSURE = """def tap(table, name):
    def hook(module, args, output):
        for key, value in module.named_parameters():
            table[name, key] = value
    return hook
def report(model):
    table = {}
    model.register_forward_hook(tap(table, 'a'))
    for key in sorted(table):
        w = table[key]
        print(w.norm())
"""
OWN = "\ndef drop(x):\n    x.untyped_storage().resize_(0)\n"


def unit(name: str = "block", elements: int = 100) -> Unit:
    return Unit("Net", name, "fully_shard", False, 2, 0, 50, 0, 4, 1, (UnitParameter(f"{name}.up.weight", elements),))


def found(
    folder: Path, source: str, *units: Unit, freed: CallSite | None = FREE, own: tuple[int, ...] = ()
) -> GatheredWeight | None:
    """Of `w` of 100 elements, in the line that reads it. `freed`: who freed a storage of that size; `own`: lines."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "w.norm()" in text)
    frame = PythonFrame("report", str(file), line)
    born = Moment(1, 5, None)
    sites = [*([freed] if freed is not None else []), *(CallSite(PythonFrame("drop", str(file), at)) for at in own)]
    storages = [Storage(0x1000 * n, 400, "freed", born, CallSite(), 1, born, site) for n, site in enumerate(sites, 1)]
    snapshot: Any = SimpleNamespace(
        storages=StorageTable.of(*storages),
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        recorded=lambda kind: [Fact(1, 1, "UNIT", item) for item in units],
    )
    crash = SimpleNamespace(arguments=(), python_stack=(frame,))
    view: Any = SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))
    return gathered_weight(view, [Holder("local", "w", 0, frame, True, elements=100)])


def monitor(fill: str = "self.weights[name] = module.weight", read: str = "self.weights.values()") -> str:
    return MONITOR.replace("{fill}", fill).replace("{read}", read)


@pytest.mark.parametrize(
    "read", ["self.weights.values()", "sorted(self.weights.values())", "list(self.weights.values())"]
)
def test_weight_that_a_hook_keeps_is_named_with_its_line(read: str, tmp_path: Path) -> None:
    """Through the loop that reads it."""
    item = found(tmp_path, monitor(read=read), unit())
    assert item is not None
    assert item.summary == (
        "`w` is a weight of `block` that FSDP gathered for a forward() or backward() and has freed since (its storage "
        "has size 0); line 8 (`self.weights[name] = module.weight`) kept it"
    )
    assert item.advice.startswith("Keep a copy (`module.weight.detach().clone()`)")


def test_weights_of_a_loop_over_parameters_are_kept_by_a_closure(tmp_path: Path) -> None:
    """The dict is passed to the function around the hook."""
    item = found(tmp_path, CLOSURE, unit())
    assert item is not None and [*item.lines] == [("line 4", "table[name, key] = value")]


def test_weight_beside_another_value_is_kept_by_the_module(tmp_path: Path) -> None:
    """A tuple in a global dict."""
    source = (
        "STORE = {}\ndef keep(module, inputs, output):\n"
        "    STORE[id(module)] = (module.weight.detach(), output.mean())\n"
        "def report():\n    for w, mean in STORE.values():\n        print(w.norm())\n"
    )
    item = found(tmp_path, source, unit())
    assert item is not None and "; line 3 (`STORE[id(module)] = (" in item.summary
    assert item.advice.startswith("Keep a copy (`.detach().clone()`)")


def test_without_the_line_that_keeps_it_it_is_probable(tmp_path: Path) -> None:
    """The size and FSDP's free of one are known."""
    item = found(tmp_path, "def report(w):\n    print(w.norm())\n", unit())
    assert item is not None and "`w` is probably a weight of `block`" in item.summary and not item.lines


def test_of_many_units_two_are_named(tmp_path: Path) -> None:
    """As their weights have one size."""
    item = found(tmp_path, monitor(), unit("a"), unit("b"), unit("c"))
    assert item is not None and item.of == "3 units (`a` or `b`, ...)"


@pytest.mark.parametrize(
    ("source", "units", "how"),
    [
        (monitor(), (), {}),
        (monitor(), (unit(elements=64),), {}),
        (monitor(), (unit(),), {"freed": None}),
        (monitor("self.weights[name] = output"), (unit(),), {}),
        (monitor() + OWN, (unit(),), {"own": (15,)}),
        (monitor() + OWN + OWN, (unit(),), {"own": (15, 18)}),
    ],
    ids=["no FSDP", "another size", "not freed by FSDP", "an output", "the program's line", "two lines of it"],
)
def test_another_tensor_without_memory_is_none_of_fsdp(
    source: str, units: tuple[Unit, ...], how: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing is said."""
    assert found(tmp_path, source, *units, **how) is None
