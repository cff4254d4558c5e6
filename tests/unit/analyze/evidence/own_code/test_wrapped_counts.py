"""Counts of the program's own C that wrapped below zero: an unsigned difference whose first number was set back."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.arrays import walked_array
from pytracer.analyze.evidence.own_code.wrapped_counts import wrapped_count
from pytracer.decode.types.snapshot import HeldArray, HeldNumber, MemoryBlock, PythonFrame
from pytracer.report.job import NativeFrame

PROGRAM = '''import ctypes, subprocess
import numpy as np
SOURCE = r"""
#include <stdint.h>
#include <string.h>
typedef struct {{ uint64_t head; uint64_t slots; }} Shared;
typedef struct {{ Shared *shared; double *data; uint64_t seen; }} Queue;
Queue *queue_open(const char *name, uint64_t slots) {{
    Shared *shared = mmap(0, sizeof *shared, 3, MAP_SHARED, shm_open(name, 2), 0);
    {reset}
    return queue_of(shared, slots);
}}
{others}
uint64_t queue_take(Queue *q, double *out) {{
    Shared *shared = q->shared;
    {count}
    {checked}
    {bound}
    q->seen += fresh;
    return fresh;
}}
"""
class Queue:
    def __init__(self, name):
        self.lib = ctypes.CDLL("libqueue.so")
        self.handle = self.lib.queue_open(name, 64)
    def take(self):
        rows = np.empty((512, 2))
        return self.lib.queue_take(self.handle, rows.ctypes.data)
queue = Queue(b"q")
queue.take()
'''
RESET = "memset(shared, 0, sizeof(Shared));"
COUNT = "uint64_t fresh = __atomic_load_n(&shared->head, 2) - q->seen;"
LOOP = "for (uint64_t i = 0; i < fresh; i++) out[i] = q->data[(q->seen + i) % shared->slots];"
HANDLE, ROWS, SEEN, NEW = 0x5592_1416_6030, 0x5592_1442_D150, 4712, 50
MAPPED = 0x7F00_1234_0000
WRAPPED = (1 << 64) - (SEEN - NEW)


def view_of(
    folder: Path, *, reset: str = RESET, count: str = COUNT, checked: str = "", bound: str = LOOP, others: str = "",
    seen: int | None = SEEN, head: int | None = NEW, registers: dict[str, int] | None = None, stack: bytes = b"",
    row: int = 13817,
) -> Any:  # fmt: skip
    """`seen`, `head`: what the memory of the structures has in their fields; None where it was not kept."""
    source = PROGRAM.format(reset=reset, count=count, checked=checked, bound=bound, others=others)
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    text = source.splitlines()
    line = next(n for n, item in enumerate(text, 1) if "lib.queue_take" in item)
    inner, outer = PythonFrame("Queue.take", str(program), line), PythonFrame("<module>", str(program), len(text))
    library = str(folder / "lib" / "libqueue.so")
    memory = [MemoryBlock("rsp", 0x7FFF_0000, 0x7FFF_0000, stack)] if stack else []
    if seen is not None:
        content = MAPPED.to_bytes(8, "little") + bytes(8) + seen.to_bytes(8, "little") + bytes(8)
        memory.append(MemoryBlock("r12", HANDLE, HANDLE, content))
    if head is not None:
        memory.append(MemoryBlock("rbp", MAPPED, MAPPED, head.to_bytes(8, "little") + bytes(8)))
    held = {"r13": WRAPPED, "rbx": row, "r14": ROWS, "eflags": 66183} if registers is None else registers
    crash = SimpleNamespace(
        arrays=(HeldArray("rows", ROWS, "float64", (512, 2), (16, 8), inner, 0),), holders=(), arguments=(),
        numbers=(HeldNumber("self.handle", HANDLE, inner, 0),), memory=tuple(memory), registers=held, mappings=(),
        python_stack=(inner, outer), python_threads=(), native_stack=(),
        images=(SimpleNamespace(path=library, start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    own = NativeFrame(function="queue_take", image=library)
    return SimpleNamespace(
        native_stack=[NativeFrame(function="__memcpy_avx", image="/lib/libc.so.6"), own], crash=crash,
        python_stack=None, region_python=(), process=SimpleNamespace(snapshot=snapshot),
        space=SimpleNamespace(live_around=lambda addr: None), place=SimpleNamespace(addr=ROWS + 16 * row + 8),
    )  # fmt: skip


def test_count_is_told_with_both_numbers_and_what_set_the_first_one_back(tmp_path: Path) -> None:
    """Both are in the memory of the structures."""
    found = wrapped_count(view_of(tmp_path))
    assert found is not None
    assert found.summary == (
        "`fresh` is 2**64 - 4662, as `shared->head` (50) was less than `q->seen` (4712) in the unsigned difference of "
        "line 16"
    )
    assert found.advice == (
        "queue_open() sets `shared->head` to 0 (line 10: `memset(shared, 0, sizeof(Shared));`), and line 26 calls it: "
        "let only the process that creates it do so, as the memory is shared. Compare `shared->head` with `q->seen` "
        "before the difference of line 16, and let `fresh` be no more than there is room for."
    )
    assert found.proven and found.evidence is not None
    assert "-4662 for signed numbers; memory has 50 in `shared->head`, and 4712 in `q->seen`" in found.evidence.sentence


@pytest.mark.parametrize(
    ("how", "numbers"),
    [
        ({"head": None}, "`shared->head` is less than `q->seen` (4712)"),
        ({"seen": None}, "`shared->head` is less than `q->seen`"),
        ({"head": 68}, "`shared->head` (68) is less than `q->seen` (4712)"),
        ({"head": None, "registers": {"rcx": (1 << 64) - 1024}}, "`shared->head` is less than `q->seen` (4712)"),
    ],
    ids=["one number", "no number of the handle", "counted on", "any small negative number"],
)
def test_number_that_may_be_another_one_is_not_taken_for_the_count(
    how: dict[str, Any], numbers: str, tmp_path: Path
) -> None:
    """Nothing is derived from it."""
    found = wrapped_count(view_of(tmp_path, **how))
    assert found is not None and not found.proven and found.evidence is None
    assert found.summary == (
        f"`fresh` may have wrapped below zero in the unsigned difference of line 16: it does where {numbers}"
    )


def test_one_below_zero_is_the_count_only_where_memory_shows_it(tmp_path: Path) -> None:
    """It is also what a function returns for an error."""
    registers = {"rax": (1 << 64) - 1}
    assert wrapped_count(view_of(tmp_path, head=None, registers=registers)) is None
    found = wrapped_count(view_of(tmp_path, head=SEEN - 1, registers=registers))
    assert found is not None and found.proven


def test_count_did_not_wrap_where_memory_has_no_less_in_the_first_number(tmp_path: Path) -> None:
    assert wrapped_count(view_of(tmp_path, head=SEEN + 3)) is None


@pytest.mark.parametrize(
    "how",
    [
        {"count": "size_t fresh = shared->head - q->seen;"},
        {"count": "unsigned long fresh; fresh = (size_t)shared->head - (size_t)q->seen;"},
        {"count": "const std::uint64_t fresh = shared->head.load() - q->seen;"},
        {"bound": "memcpy(out, q->data, fresh * sizeof *out);"},
        {"registers": {"rsp": 0x7FFF_0000, "rbp": 0x7FFF_0040}, "stack": bytes(16) + WRAPPED.to_bytes(8, "little")},
    ],
)
def test_other_ways_to_write_it_are_found(how: dict[str, Any], tmp_path: Path) -> None:
    """Types, loads, copies; also where the number is on the stack, as without optimization."""
    found = wrapped_count(view_of(tmp_path, **how))
    assert found is not None and found.numbers == (NEW, SEEN)


def test_count_of_32_bits_wraps_at_its_own_size(tmp_path: Path) -> None:
    found = wrapped_count(
        view_of(tmp_path, count="uint32_t fresh = shared->head - q->seen;", registers={"r13": (1 << 32) - 4662})
    )
    assert found is not None and "`fresh` is 2**32 - 4662" in found.summary


def test_count_that_is_counted_down_has_not_the_first_number_any_more(tmp_path: Path) -> None:
    found = wrapped_count(view_of(tmp_path, bound="while (fresh-- > 0) *out++ = 0;", registers={"rax": WRAPPED - 9000}))
    assert found is not None and not found.proven and found.numbers == (None, None)


@pytest.mark.parametrize(
    "reset",
    [
        "if (is_new) memset(shared, 0, sizeof(Shared));",
        "if (is_new) { shared->head = 0; }",
        "memset(name_copy, 0, 16);",
        "shared->slots = 0;",
        "memset(shared, 0, sizeof(Shared)); queue->seen = 0;",
        "shared->head = 0; *queue = (Queue){shared, 0, 0};",
    ],
)
def test_what_sets_back_nothing_or_only_what_is_new_is_not_named(reset: str, tmp_path: Path) -> None:
    found = wrapped_count(view_of(tmp_path, reset=reset))
    assert found is not None and not found.resets
    assert found.advice.startswith("Find what made `shared->head` less than `q->seen`")


def test_function_that_sets_the_field_itself_is_named(tmp_path: Path) -> None:
    others = "void queue_clear(Queue *q) {\n    Shared *shared = q->shared;\n    shared->head = 0;\n}"
    found = wrapped_count(view_of(tmp_path, reset="", others=others))
    assert found is not None and [item.function for item in found.resets] == ["queue_clear"]


def test_what_was_just_allocated_is_no_number_in_use(tmp_path: Path) -> None:
    """The handle of the process that sets the shared one back is another one."""
    reset = "memset(shared, 0, sizeof(Shared)); Queue *q = malloc(sizeof *q); *q = (Queue){shared, 0, 0};"
    found = wrapped_count(view_of(tmp_path, reset=reset))
    assert found is not None and [item.function for item in found.resets] == ["queue_open"]


def test_reset_of_the_whole_structure_of_both_is_not_blamed(tmp_path: Path) -> None:
    """Afterwards neither is less."""
    others = "void queue_clear(Shared *shared) {\n    memset(shared, 0, sizeof *shared);\n}"
    count = "uint64_t fresh = shared->head - shared->slots;"
    found = wrapped_count(view_of(tmp_path, reset="", others=others, count=count, head=None))
    assert found is not None and not found.resets


def test_reset_that_no_line_of_python_calls_may_be_called_by_c(tmp_path: Path) -> None:
    others = "void queue_clear(Shared *shared) {\n    shared->head = 0;\n}"
    found = wrapped_count(view_of(tmp_path, reset="queue_clear(shared);", others=others))
    assert found is not None and "and no line of Python calls it" in found.advice


@pytest.mark.parametrize(
    "bound",
    [
        "memcpy(" * 5_000,
        "while (" * 5_000,
        "if (" * 5_000 + LOOP,
        LOOP + "min(" * 5_000 + "? fresh < " * 5_000,
    ],
    ids=["copies", "loops", "checks", "limits"],
)
def test_source_of_any_length_takes_little_time(bound: str, tmp_path: Path) -> None:
    began = time.process_time()
    wrapped_count(view_of(tmp_path, bound=bound))
    assert time.process_time() - began < 8


@pytest.mark.parametrize(
    "how",
    [
        {"checked": "TORCH_CHECK(shared->head >= q->seen);"},
        {"checked": "TORCH_CHECK_GE(shared->head, q->seen);"},
        {"checked": "gsl_Expects(fresh <= 512);"},
        {"checked": "my_assert(fresh <= 512);"},
        {"bound": LOOP.replace("i < fresh", "i < fresh && i < 512")},
        {"bound": "while (fresh-- > 0 && out < end) *out++ = 0;"},
        {"count": "double *begin; double *end = out; size_t fresh = end - begin;"},
        {"count": "size_t fresh = (char *)q->data - (char *)out;"},
        {"count": "size_t fresh = q->data - out;"},
        {"count": "size_t fresh = out - q->seen;"},
        {"checked": "if (fresh > shared->slots) fresh = shared->slots;"},
        {"checked": "if (shared->head < q->seen) return 0;"},
        {"bound": LOOP.replace("i < fresh", "i < MIN(fresh, 512)")},
        {"count": "int64_t fresh = shared->head - q->seen;"},
        {"count": "uint64_t fresh = shared->head + q->seen;"},
        {"count": "uint64_t fresh = q->seen;"},
        {"bound": "note(fresh);"},
        {"registers": {"r13": 4662, "rbx": 7}},
        {"registers": {"r13": (1 << 64) - 9000}},
        {"registers": {"r13": (1 << 64) - 1}, "seen": None},
        {"registers": {"r13": WRAPPED, "r15": WRAPPED + 1}, "seen": None},
        {"registers": {"eflags": WRAPPED}},
    ],
    ids=["checked", "checked by another macro", "expected", "asserted", "second limit", "second limit of the pointer",
         "pointers", "addresses", "pointers of a field", "a parameter", "limited", "compared before",
         "limited in the loop", "signed", "a sum", "no difference", "bounds nothing",
         "did not wrap", "below what there was", "an error code", "two numbers", "no general register"],
)  # fmt: skip
def test_other_counts_are_not_laid_to_it(how: dict[str, Any], tmp_path: Path) -> None:
    assert wrapped_count(view_of(tmp_path, **how)) is None


def test_array_whose_first_byte_and_row_are_in_registers_was_left(tmp_path: Path) -> None:
    found = walked_array(view_of(tmp_path))
    assert found is not None and (found.array.expression, found.row) == ("rows", 13817)
    assert found.evidence.sentence == (
        "r14 points at the first byte of `rows` [512, 2] float64, and rbx has 13817: the address is in row 13817, "
        "counted from 0"
    )


@pytest.mark.parametrize(
    "registers", [{"r14": ROWS}, {"rbx": 13817}, {"r14": ROWS, "rbx": 13816}, {"r14": ROWS + 16, "rbx": 13817}]
)
def test_array_without_its_row_or_first_byte_may_be_another_one(registers: dict[str, int], tmp_path: Path) -> None:
    assert walked_array(view_of(tmp_path, registers=registers)) is None


def test_row_within_the_array_left_nothing(tmp_path: Path) -> None:
    assert walked_array(view_of(tmp_path, row=300)) is None
