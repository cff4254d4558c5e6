"""A fault in a freed block across the end of the heap: torch's operator ran on into it, or somebody used it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices.counted_up_to import counted_up_to
from pytracer.decode.types.snapshot import Argument
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import died, memory, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

POINTERS, INDICES, OTHERS, FREED = 0x5581_0000_1000, 0x5581_0001_0000, 0x5581_0008_0000, 0x5581_0010_0000
END = 0x5581_0012_0000
HEAP = (0x5581_0000_0000, END, "rw-p", 0, "[heap]")
STACK = 0x7FFD_0000_0100
STORE = bytes.fromhex("0f1140f0")  # movups xmmword ptr [rax - 0x10], xmm0
KERNEL = "at::native::structured__convert_indices_from_coo_to_csr_structured_cpu::impl(at::Tensor const&)"
OPERATOR = [(s.TORCH_CPU, "at::_ops::to_sparse_csr::call(at::Tensor const&)"), (s.PYTHON, "_PyEval_EvalFrameDefault")]
PROGRAM = """\
import torch
def adjacency(edges, users):
    weight = torch.ones(edges.size(1))
    adj = torch.sparse_coo_tensor(edges, weight, (users, users))
    adj = adj.coalesce()
    return adj.to_sparse_csr()
"""
ROW = 1_290_331_742
WRITTEN = (20001, 20001)


def tensor(base: int, elements: int, ends: tuple[int, int]) -> Argument:
    values: dict[str, Any] = {"frame": 0, "outer_frame": 2, "register": None, "how": "reference"}
    return Argument(base ^ 0xFF, base, elements, 0, (elements,), 1, "int64", "cpu", *ends, **values)


def crashed(
    run: Path, *stack: int, of: str = s.TORCH_CPU, indices: tuple[int, int] = WRITTEN,
    others: tuple[int, int] = WRITTEN, program: Path | None = None,
    kernel: str = KERNEL,
) -> Report:  # fmt: skip
    """The row pointers are written up to where the heap ends, in the middle of what the last step freed."""
    box = Box(pid=101).alloc(POINTERS, 40008).alloc(INDICES, 320080).alloc(OTHERS, 320080)
    registers = {"rax": END + 16, "rsi": POINTERS, "r10": INDICES, "r9": ROW, "rdi": ROW - 4999}
    tensors = tensor(POINTERS, 5001, (0, 20001)), tensor(INDICES, 20002, indices), tensor(OTHERS, 40010, others)
    return died(
        run, box=box.alloc(FREED, 640_000).free(FREED), addr=END, code_bytes=STORE, error_code=6,
        registers={**registers, "rcx": 4999, "rsp": STACK, "trapno": 14}, sp=STACK,
        memory=(memory(STACK, 7, *stack, register="rsp"),), stack_of=[(of, kernel), *OPERATOR],
        python=[("adjacency", str(program or s.SCRIPT), 6)], mappings=[HEAP], arguments=tensors,
    )  # fmt: skip


def write(program: Path, text: str) -> None:
    program.write_text(text, encoding="utf-8")
    os.utime(program, (1, 1))  # older than the run


def test_operator_that_ran_into_a_freed_block_wrote_out_of_bounds(run: Path) -> None:
    """It began at the first of two storages: the second one was gone over, as another tensor was."""
    report = crashed(run)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "wrote past the end of a tensor of 39.1 KiB" in summary(report)
    assert "it ran on for 1.1 MiB, to the end of accessible memory" in summary(report)


def test_indices_that_nothing_checked_are_named_with_how_far_they_lead(run: Path, tmp_path: Path) -> None:
    program = tmp_path / "graph.py"
    write(program, PROGRAM)
    report = crashed(run, program=program)
    words = "the indices of `adj`, which torch.sparse_coo_tensor() at line 4 does not check, lead there"
    assert words in summary(report) and f"one of them perhaps to {ROW}" in summary(report)
    write(program, PROGRAM.replace("users))", "users), check_invariants=True)"))
    assert "does not check" not in summary(crashed(run / "checked", program=program))


def test_storage_of_the_index_that_is_counted_up_to_is_not_the_one_written(run: Path) -> None:
    """It is whole: the write began behind it, or it is not on the way."""
    report = crashed(run, indices=(0, ROW), others=(0, ROW))
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "wrote past the end of a tensor of 39.1 KiB" in summary(report)


@pytest.mark.parametrize(
    "how",
    [
        {"indices": (0, 4999)},
        {"others": (0, 9)},
        {"indices": (0, 0), "others": (0, 0)},
        {"of": "/home/user/libgraph.so"},
        {"kernel": "at::native::index_put_kernel(at::TensorIterator&)"},
    ],
    ids=["the second is whole", "another is whole", "filled with zeros", "code of the program", "another kernel"],
)
def test_freed_block_is_used_where_nothing_shows_that_it_was_run_into(how: dict[str, Any], run: Path) -> None:
    assert verdict(crashed(run, **how))[0] == "use-after-free"


def test_freed_block_is_used_where_its_address_is_held(run: Path) -> None:
    assert verdict(crashed(run, FREED))[0] == "use-after-free"


@pytest.mark.parametrize(
    ("registers", "number"),
    [
        ({"r9": ROW, "rdi": ROW - 4999, "rcx": 4999}, ROW),
        ({"r9": ROW, "rcx": 4999}, None),
        ({"r9": ROW, "rdi": ROW - 4998, "rcx": 4999}, None),
        ({"r9": ROW, "rdi": ROW - 4999, "rcx": 4999, "rbx": ROW + 4999}, None),
        ({"r9": 9000, "rdi": 4001, "rcx": 4999}, None),
        ({"r9": ROW, "rdi": ROW - 1, "rcx": 1}, None),
        ({"r9": ROW, "rdi": ROW - 32768, "rcx": 32768}, None),
        ({"r9": 5_000_000, "rdi": 4_995_001, "rcx": 4999}, None),
        ({"r9": END - 64, "rdi": END - 5063, "rcx": 4999}, None),
    ],
    ids=["sum", "alone", "no sum", "two sums", "small", "the last one", "a thread's part", "elements", "addresses"],
)
def test_number_that_a_loop_counts_up_to_is_a_sum_of_two_registers(
    registers: dict[str, int], number: int | None
) -> None:
    view: Any = SimpleNamespace(
        crash=SimpleNamespace(registers=registers, mappings=(), arguments=(tensor(OTHERS, 5_000_000, (0, 9)),))
    )
    storage: Any = SimpleNamespace(nbytes=40008)
    assert counted_up_to(view, storage) == number
