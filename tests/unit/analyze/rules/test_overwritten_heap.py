"""Tensors behind which the heap is overwritten: what is named, and what of it is said to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, CallSite, Holder, Moment, Overrun, PythonFrame, Storage
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, advice, died, evidence, summary, verdict

BASE = 0x5581_0000_1000
FLOATS = 0x3F02_00B2_3EFF_3512
SOURCE = """import torch

class Trainer:
    def __init__(self, model):
        self.params = [p.detach() for p in model.parameters()]
        self.moments = [torch.zeros(3, 5)]
        self.history = [torch.zeros(3, 5)]

    def step(self):
        torch._fused_adagrad_(self.params, self.moments, lr=0.1)
        log(self.moments)

    def watch(self):
        out = torch.cat(self.history)
        return out

def log(moments):
    print(moments)
"""
ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101, "abort_text": "free(): invalid next size (fast)\n"}
FREE = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), (LIBC_SO, "__libc_free")]
MALLOC = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_malloc"), (LIBC_SO, "__libc_malloc")]


def crashed(
    run: Path, *, made: int = 6, held: str | None = "trainer.moments[0]", state: Any = "live", before: bool = False,
    others: tuple[Holder, ...] = (), stack: Any = FREE, overruns: bool = True, word: int = FLOATS, **how: Any,
) -> Report:  # fmt: skip
    file = run / "train.py"
    file.write_text(SOURCE, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    frame = PythonFrame("<module>", str(file), 14)
    site = CallSite(PythonFrame("__init__", str(file), made), None, None, None)
    storage = Storage(BASE, 60, state, Moment(1, 1, None), site, 101)
    holders = (Holder("global", held, BASE, frame, True, elements=15),) if held is not None else ()
    how = {
        **ABORT, "stack_of": stack, "python": [("<module>", str(file), 14)], "holders": (*holders, *others),
        "overruns": (Overrun(storage, word, before),) if overruns else (), **how,
    }  # fmt: skip
    return died(run, **how)


def other(run: Path, expression: str, elements: int) -> Holder:
    frame = PythonFrame("<module>", str(run / "train.py"), 14)
    return Holder("global", expression, BASE + 4096, frame, True, elements=elements)


def test_tensor_is_named_with_the_call_and_the_larger_one_that_it_is_passed_with(run: Path) -> None:
    """The line that made it, too; print() and functions of the program do not write past its end."""
    report = crashed(run, others=(other(run, "trainer.params[0]", 30),))
    assert verdict(report) == ("heap-corruption", "certain")
    assert summary(report).endswith(
        "aborted because the C library found its heap damaged, at train.py:14 in <module>: the memory right behind "
        "`trainer.moments[0]` (15 elements, 60 bytes) is overwritten."
    )
    assert advice(report).startswith(
        "Compare the size of `trainer.moments[0]`, which line 6 (`self.moments = [torch.zeros(3, 5)]`) made, with "
        "`trainer.params[0]` (30 elements), which line 10 passes with it: native code wrote past its end"
    )
    assert "is 0x3f0200b23eff3512: two float32 numbers, 0.4985 and 0.5078" in evidence(report)


def test_smaller_tensor_beside_it_is_no_comparison(run: Path) -> None:
    said = advice(crashed(run, others=(other(run, "trainer.params[0]", 8),)))
    assert "trainer.params" not in said and "with what line 10 passes with it" in said


def test_tensor_without_a_variable_has_the_line_that_made_it(run: Path) -> None:
    """Its text names the variable, which has gone."""
    report = crashed(run, held=None)
    assert "a tensor of 60 bytes that line 6 (`self.moments = [torch.zeros(3, 5)]`) made is" in summary(report)
    assert "with what line 10 passes with it" in advice(report)


def test_tensor_that_no_call_passes_has_what_its_line_passes(run: Path) -> None:
    report = crashed(run, made=14, held="out")
    assert advice(report).startswith("Check the sizes and indices that line 14 passes (`history`), and of later calls")


def test_memory_before_a_tensor_is_said_to_be_before_it(run: Path) -> None:
    report = crashed(run, before=True)
    assert "the memory right before `trainer.moments[0]` (15 elements, 60 bytes) is overwritten" in summary(report)
    assert "wrote before its start, by a negative index, or past the end of what lies before it" in advice(report)


def test_freed_last_counts_only_of_a_death_in_free(run: Path) -> None:
    """Elsewhere its memory may be another block by now."""
    assert "right behind a tensor of 60 bytes" in summary(crashed(run, state="freed"))
    assert "right behind" not in summary(crashed(run, state="freed", stack=MALLOC))


def test_address_may_be_of_the_lists_of_malloc(run: Path) -> None:
    """Written by malloc() itself, after it took a wrong size for one; a count that was increased is none."""
    assert "right behind" not in summary(crashed(run, word=0x5622_3A85_12E0))
    assert "right behind" in summary(crashed(run, word=0x29))


@needs_capstone
def test_pointer_of_numbers_is_damage_of_the_heap_where_memory_behind_a_tensor_is_overwritten(run: Path) -> None:
    """And a wild pointer where nothing of the kind was found."""
    fault: dict[str, Any] = {
        "signal": 11, "code": 128, "sender_pid": None, "abort_text": None, "addr": 0, "code_bytes": b"\x48\x8b\x07",
        "registers": {"rdi": FLOATS}, "stack": [(s.TORCH_CPU, "at::native::empty_cpu")],
    }  # fmt: skip
    report = crashed(run, **fault)
    assert verdict(report) == ("heap-corruption", "likely")
    assert "which holds two float32 numbers" in summary(report) and "behind `trainer.moments[0]`" in summary(report)
    assert verdict(crashed(run, overruns=False, **fault)) == ("wild-pointer", "likely")


@pytest.mark.parametrize(("minimum", "maximum", "named"), [(0, 5005, True), (0, 15, False), (-99, 3, True)])
@needs_capstone
def test_index_beyond_all_tensors_of_the_line_is_the_first_suspect(
    minimum: int, maximum: int, named: bool, run: Path
) -> None:
    """A value that some tensor has as many elements of may be right."""
    file = run / "train.py"
    frame = PythonFrame("step", str(file), 10)
    index = Argument(
        0x10, BASE, 3, 0, (3,), 1, "int64", "cpu", minimum, maximum, None, None, None, "held", strides=(1,)
    )
    data = Argument(
        0x20, BASE + 4096, 15, 0, (3, 5), 2, "float32", "cpu", None, None, None, None, None, "held", strides=(5, 1)
    )
    holders = tuple(
        Holder("local", name, at, frame, True, elements=count)
        for name, at, count in (("self.moments", BASE, 3), ("self.params", BASE + 4096, 15))
    )
    stack = [(s.TORCH_CPU, "at::native::empty_cpu"), (s.TORCH_CPU, "at::_ops::embedding_bag::call(at::Tensor const&)")]
    report = crashed(
        run, overruns=False, held=None, others=holders, arguments=(index, data), python=[("step", str(file), 10)],
        signal=11, code=128, sender_pid=None, abort_text=None, addr=0, code_bytes=b"\x48\x8b\x07",
        registers={"rdi": 0x0142_1829_27EC_1400}, stack=stack,
    )  # fmt: skip
    assert ("Check `self.moments` [3] int64 first, which line 10 passes" in advice(report)) == named, advice(report)
