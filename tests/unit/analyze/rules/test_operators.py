"""What rules conclude from the running operator and its tensors: a case that fires and a look-alike that must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, NativeFrame, PythonFrame, ThreadStack
from pytracer.report.job import Operator, Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, summary, verdict
from tests.support.synth import Box

HEAP = (0x5581_0000_0000, 0x5581_0020_0000, "rw-p", 0, "[heap]")
TABLE, INDEX, WILD = 0x5581_0000_1000, 0x5581_0010_0000, 0x1357_9BDF_0240
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
ENTRY = 1
GATHER = [
    (s.TORCH_CPU, "at::native::gather_kernel(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::gather::call(at::Tensor const&, long, at::Tensor const&, bool)"),
    (s.TORCH_CPU, "torch::autograd::THPVariable_gather(_object*, _object*, _object*)"),
    PYTHON,
]
EXTENSION = "/home/user/extension.so"
LOOK_UP = [(EXTENSION, "(anonymous namespace)::look_up(at::Tensor const&, at::Tensor const&)"), PYTHON]
IN_STEP = [("step", s.SCRIPT, 41)]
STEP = PythonFrame("step", s.SCRIPT, 41)


def tensor(base: int, *sizes: int, dtype: str = "float32", outer: int | None = 2, **more: Any) -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    values = {"minimum": None, "maximum": None, "register": None, "how": "reference", "frame": 0, **more}
    return Argument(
        base ^ 0xFF, base, elements, 0, sizes, len(sizes), dtype, "cpu", outer_frame=outer, **values
    )  # fmt: skip


def index(lowest: int, highest: int, **more: Any) -> Argument:
    return tensor(INDEX, 3, dtype="int64", minimum=lowest, maximum=highest, **more)


def crashed(run: Path, *arguments: Argument, addr: int = WILD, **how: Any) -> Report:
    box = Box(pid=101).alloc(TABLE, 400).alloc(INDEX, 64)
    holders = (Holder("local", "table", TABLE, STEP, True), Holder("local", "rows", INDEX, STEP, True))
    how = {
        "stack_of": GATHER, "python": IN_STEP, "registers": {"rdx": addr}, "code_bytes": LOAD, "holders": holders,
        "mappings": [PROGRAM, HEAP], **how,
    }  # fmt: skip
    return died(run, box=box, addr=addr, arguments=arguments, **how)


def operator(report: Report) -> Operator:
    found = (report.processes or [])[0].operator
    assert found is not None
    return found


@needs_capstone
def test_index_beyond_every_size_of_an_operators_tensors_is_a_wrong_index(run: Path) -> None:
    """No part of the address is at hand: the values of the argument say it."""
    report = crashed(run, tensor(TABLE, 10, 4), index(0, 99))
    assert verdict(report) == ("out-of-bounds", "likely")
    assert summary(report) == (
        "Process 101 (train.py) read out of bounds in at::native::gather_kernel, at train.py:41 in step: `rows`, an "
        "argument of aten::gather, holds 99, which leads out of all of its tensors."
    )
    assert "an index of self: table [10, 4] float32 must be less than 10" in evidence(report)
    assert advice(report).startswith("Check the values of `rows` before line 41 passes it: 99 must not be")
    assert operator(report).says == "aten::gather with self: table [10, 4] float32; index: rows [3] int64, 0..99"


@needs_capstone
@pytest.mark.parametrize(
    ("highest", "headline"),
    [(5_000_000_000, "`rows`, an argument of aten::gather, holds 5000000000"), (99, "index 5426389 leads out of")],
    ids=["on the way", "beyond the largest value"],
)
def test_element_that_a_loop_had_reached_is_not_the_index_that_was_passed(
    run: Path, highest: int, headline: str
) -> None:
    """How far the loop comes is chance; the number that began it is the argument's."""
    reached = 5_426_389
    addr = TABLE + 16 * reached
    registers = {"rdx": addr, "rcx": reached, "rax": TABLE}
    report = crashed(run, tensor(TABLE, 10, 4), index(0, highest), addr=addr, registers=registers)
    assert verdict(report)[0] == "out-of-bounds"
    assert headline in summary(report)
    assert "+ 16 * 5426389" in evidence(report)


@needs_capstone
@pytest.mark.parametrize(
    "arguments",
    [
        [tensor(TABLE, 10, 4), index(0, 9)],
        [tensor(TABLE, 10, 4), index(0, 99, outer=0)],
        [tensor(TABLE, 10, 4), index(0, 99), tensor(INDEX + 32, 2, dtype="int64", minimum=0, maximum=1)],
        [index(0, 99)],
        [tensor(TABLE, 10, 4), tensor(INDEX, 3, dtype="int64")],
    ],
    ids=["in range", "not of the caller", "which is the index", "nothing to index", "values not recorded"],
)
def test_index_that_may_be_right_leaves_a_wild_pointer_wild(run: Path, arguments: list[Argument]) -> None:
    """In range; of an inner function; one of two integer tensors, which may be data; with --no-values."""
    assert verdict(crashed(run, *arguments)) == ("wild-pointer", "likely")


@needs_capstone
def test_integers_of_an_operator_that_takes_no_index_are_no_indices(run: Path) -> None:
    """aten::add of large numbers."""
    stack = [GATHER[0], (s.TORCH_CPU, "at::_ops::add_Tensor::call(at::Tensor const&, at::Tensor const&)"), PYTHON]
    assert verdict(crashed(run, tensor(TABLE, 10, 4), index(0, 99), stack_of=stack)) == ("wild-pointer", "likely")


@needs_capstone
def test_null_in_an_operator_with_a_wrong_index_stays_a_null_dereference(run: Path) -> None:
    """The address is explained by another rule."""
    report = crashed(run, tensor(TABLE, 10, 4), index(0, 99), addr=0)
    assert verdict(report)[0] == "null-dereference"


@needs_capstone
def test_empty_temporary_among_the_tensors_of_an_operator_is_named(run: Path) -> None:
    """No variable holds it."""
    report = crashed(run, tensor(0, 0), tensor(TABLE, 10, 4), addr=0, stack_of=LOOK_UP, holders=())
    assert verdict(report) == ("null-dereference", "certain")
    assert summary(report).endswith(": (anonymous)::look_up works on [0] float32, empty.")
    assert "it was given [0] float32, empty" in advice(report)


@needs_capstone
def test_result_that_an_operator_left_empty_is_not_what_it_was_given(run: Path) -> None:
    """An argument has a variable, and its values are to be checked; the empty tensor is the operator's own."""
    report = crashed(run, index(1 << 62, 1 << 62), tensor(0, 0, dtype="int64"), addr=0, stack_of=LOOK_UP)
    assert verdict(report) == ("null-dereference", "certain")
    given = "rows [3] int64, all 4611686018427387904"
    assert summary(report).endswith(f"look_up was given {given}, and works on an empty tensor of its own.")
    assert advice(report).startswith(f"Check the values and sizes of {given} before line 41")


@needs_capstone
def test_undefined_tensor_is_named_for_an_extension_and_not_for_torch(run: Path) -> None:
    """Torch's operators make undefined tensors themselves."""
    undefined = tensor(0, dtype="float32", undefined=True)
    report = crashed(run / "1", undefined, addr=0, stack_of=LOOK_UP)
    assert "undefined" in summary(report)
    report = crashed(run / "2", undefined, tensor(TABLE, 10, 4), addr=0)
    assert "undefined" not in summary(report) + evidence(report) + (operator(report).says or "")


@needs_capstone
def test_operator_of_a_worker_is_that_of_the_thread_that_opened_the_region(run: Path) -> None:
    """Its own stack has a lambda only."""
    main = [(f"{s.TORCH}/lib/libgomp.so.1", None), *GATHER]
    stack = ThreadStack(101, "python", 1, "done", tuple(NativeFrame(1, i, 2, None, "exact", f) for i, f in main))
    worker = [(s.TORCH_CPU, "at::internal::invoke_parallel"), (f"{s.TORCH}/lib/libgomp.so.1", None)]
    captured = tensor(TABLE, 10, 4, how="captured", outer=0)
    how: dict[str, Any] = {"stack_of": worker, "python": [], "tid": 102, "threads": (stack,)}
    assert operator(crashed(run / "1", captured, **how)).says == "aten::gather with self: table [10, 4] float32"
    idle = ThreadStack(101, "python", 1, "done", stack.native_stack[1:])
    report = crashed(run / "2", captured, **(how | {"threads": (idle,)}))
    assert (report.processes or [])[0].operator is None


@needs_capstone
def test_operator_that_ended_before_is_not_named(run: Path) -> None:
    """The stack has no operator between the fault and Python's code; the callers' have ended."""
    stack = [("/usr/lib/libffi.so.8", "ffi_call"), PYTHON, *GATHER]
    report = crashed(run, tensor(TABLE, 10, 4), index(0, 99), stack_of=stack)
    assert (report.processes or [])[0].operator is None
    assert verdict(report) == ("wild-pointer", "likely")


# ---- rows in front of and behind a tensor ----

ROWS_AWAY = 76561198000000000
EMPTY = tensor(0, 0, dtype="int64", outer=2)
BELOW_NULL = (1 << 64) - 80


def test_row_number_of_an_index_tensor_is_found_behind_an_address_that_no_register_explains(tmp_path: Path) -> None:
    """An accessor's row: base + 16 columns of 4 bytes * the largest element, which is in no register any more."""
    addr = (TABLE + 64 * ROWS_AWAY) % (1 << 64)
    table = tensor(TABLE, 6, 16)
    report = crashed(tmp_path, table, index(0, ROWS_AWAY), addr=addr, stack_of=LOOK_UP)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert f"index {ROWS_AWAY} of `rows` leads out of `table` [6, 16]" in summary(report)
    assert "`table` [6, 16] has 6 rows" in advice(report)


def test_largest_element_that_leads_elsewhere_explains_nothing(tmp_path: Path) -> None:
    addr = (TABLE + 64 * ROWS_AWAY + 4096) % (1 << 64)
    report = crashed(tmp_path, tensor(TABLE, 6, 16), index(0, ROWS_AWAY), addr=addr, stack_of=LOOK_UP)
    assert verdict(report)[0] == "wild-pointer"


def test_row_minus_one_of_an_empty_tensor_is_below_null(tmp_path: Path) -> None:
    report = crashed(tmp_path, tensor(TABLE, 6, 16), EMPTY, addr=BELOW_NULL)
    assert verdict(report) == ("null-dereference", "likely")
    assert "a null pointer minus 80 bytes" in summary(report)


def test_result_without_rows_is_named_by_what_it_was_made_of(tmp_path: Path) -> None:
    """The operator made room for no rows, and reads the one before the first."""
    report = crashed(tmp_path, tensor(TABLE, 6, 16), tensor(0, 0, 64, outer=0), addr=BELOW_NULL, stack_of=LOOK_UP)
    assert verdict(report) == ("null-dereference", "likely")
    assert "works on an empty tensor of its own" in summary(report)
    assert "has no elements by them, and it reads the one before the first" in advice(report)


def test_small_negative_address_without_an_empty_tensor_is_no_overwritten_pointer(tmp_path: Path) -> None:
    """It may be an error code; an overwritten pointer would hold any number."""
    report = crashed(tmp_path, tensor(TABLE, 6, 16), index(0, 2), addr=BELOW_NULL)
    assert verdict(report) == ("wild-pointer", "possible")
    assert "memory at 0xffffffffffffffb0, the number -80" in summary(report)
    assert "an empty buffer or a null pointer" in advice(report) and "an error code" in advice(report)
    assert "overwritten" not in summary(report) + advice(report)


@needs_capstone
def test_null_register_below_which_is_read_is_certain(tmp_path: Path) -> None:
    """The program's own function: `movsd xmm0, qword ptr [rdi + rsi*8 - 8]`."""
    code, registers = bytes.fromhex("f20f1044f7f8"), {"rdi": 0, "rsi": 0}
    stack = [("/home/user/liblast.so", "last"), PYTHON]
    how: dict[str, Any] = {"stack_of": stack, "code_bytes": code, "addr": (1 << 64) - 8}
    report = crashed(tmp_path, registers=registers, **how)
    assert verdict(report) == ("null-dereference", "certain")
    assert "a null pointer minus 8 bytes" in summary(report)
    other = crashed(tmp_path / "2", registers={"rdi": (1 << 64) - 16, "rsi": 2}, **how)
    assert verdict(other)[0] == "wild-pointer"


FAR_ROW = -6_148_914_691_236_517_206


def unread(**more: Any) -> Argument:
    """An index tensor that is too large for the handler."""
    return tensor(INDEX, 20_000, dtype="int64", **more)


@needs_capstone
def test_index_tensor_that_is_too_large_to_be_read_is_possibly_the_cause(run: Path) -> None:
    """A register held the first byte of the other tensor, and the address is a whole number of its rows away."""
    addr = (TABLE + 16 * FAR_ROW) % (1 << 64)
    report = crashed(
        run, tensor(TABLE, 10, 4), unread(), addr=0, stack_of=LOOK_UP, code=128,
        registers={"rdx": addr, "r13": TABLE, "trapno": 13},
    )  # fmt: skip
    assert verdict(report) == ("out-of-bounds", "possible")
    assert "possibly by an index of `rows`" in summary(report)
    assert advice(report).startswith("Check the values of `rows` before line 41 passes it")


@needs_capstone
@pytest.mark.parametrize(
    ("off", "more"),
    [(4, ()), (0, (tensor(INDEX + 64, 5000, dtype="int64"),)), (0, None)],
    ids=["no whole row", "which of two", "all values are known"],
)
def test_wild_address_without_one_unread_index_stays_wild(
    off: int, more: tuple[Argument, ...] | None, run: Path
) -> None:
    """The look-alikes."""
    addr = (TABLE + 16 * FAR_ROW + off) % (1 << 64)
    integers = (index(0, 9),) if more is None else (unread(), *more)
    report = crashed(
        run, tensor(TABLE, 10, 4), *integers, addr=0, stack_of=LOOK_UP, code=128,
        registers={"rdx": addr, "r13": TABLE, "trapno": 13},
    )  # fmt: skip
    assert verdict(report)[0] == "wild-pointer"


INDEXED = bytes.fromhex("8b1488")  # mov edx, dword ptr [rax + rcx*4]
PAIR = 2 * (1 << 32) + 1


def indexed(run: Path, count: int, *integers: Argument) -> Report:
    addr = TABLE + 4 * count
    return crashed(
        run, tensor(TABLE, 10, 4), *integers, addr=addr % (1 << 64), stack_of=LOOK_UP, code_bytes=INDEXED,
        registers={"rax": TABLE, "rcx": count % (1 << 64)},
    )  # fmt: skip


@needs_capstone
@pytest.mark.parametrize(("dtype", "highest", "pair"), [("int32", 9, True), ("int64", 9, False), ("int32", 1, False)])
def test_index_that_two_neighbours_of_32_bits_make_is_told(dtype: str, highest: int, pair: bool, run: Path) -> None:
    """The look-alikes: numbers of 64 bits, and numbers among which the halves are not."""
    integers = tensor(INDEX, 3, dtype=dtype, minimum=0, maximum=highest)
    report = indexed(run, 4 * PAIR, integers)
    assert verdict(report)[0] == "out-of-bounds"
    assert ("Pass `rows` as int64" in advice(report)) == pair


@needs_capstone
@pytest.mark.parametrize(("count", "number"), [(-(1 << 31), False), (-(1 << 31) + 1, True)])
def test_index_that_the_processor_makes_of_nan_is_told(count: int, number: bool, run: Path) -> None:
    """The look-alike is one beside it."""
    assert ("isfinite()" in advice(indexed(run, count))) != number


@needs_capstone
@pytest.mark.parametrize(("highest", "certain"), [(9_000_000, True), (9, False)])
def test_plain_indices_of_a_compressed_tensor(highest: int, certain: bool, run: Path) -> None:
    """Larger than every size of the dense tensors; the row pointers that count them are no indices."""
    stack = [(image, (name or "").replace("gather", "sparse_sampled_addmm")) for image, name in GATHER]
    pointers = tensor(INDEX, 4, dtype="int64", minimum=0, maximum=30)
    plain = tensor(INDEX + 0x100, 30, dtype="int64", minimum=0, maximum=highest)
    report = crashed(run, tensor(TABLE, 10, 4), pointers, plain, stack_of=stack)
    assert (verdict(report)[0] == "out-of-bounds") == certain
    assert ("holds 9000000" in summary(report)) == certain


@needs_capstone
@pytest.mark.parametrize(("highest", "class_"), [(9_000_000, "out-of-bounds"), (9, "use-after-free")])
def test_index_that_leads_out_makes_a_use_after_free_possible_only(highest: int, class_: str, run: Path) -> None:
    """The address lies in a freed storage by chance; where no index leads out, it was used."""
    freed, addr = 0x7F00_0000_0000, 0x7F00_0000_8000
    box = Box(pid=101).alloc(TABLE, 400).alloc(INDEX, 64).alloc(freed, 1 << 20).free(freed)
    arguments = (tensor(TABLE, 10, 4), index(0, highest))
    report = died(
        run, box=box, addr=addr, arguments=arguments, stack_of=GATHER, python=IN_STEP, registers={"rdx": addr},
        code_bytes=LOAD, mappings=[PROGRAM, HEAP],
    )  # fmt: skip
    assert verdict(report)[0] == class_


NORM = [
    (s.TORCH_CPU, "at::native::batch_norm_cpu_update_stats_template<float>(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::batch_norm_update_stats::call(at::Tensor const&, at::Tensor const&, double)"),
    PYTHON,
]
HUGE = 107_160_522_565  # what a stride was overwritten with


def norm(run: Path, channels: int, stack: list[tuple[str, str]]) -> Report:
    registers = {"rdx": TABLE + 4 * HUGE, "r13": TABLE, "r15": HUGE}
    given = (tensor(TABLE, 100), tensor(INDEX, 4, channels, 2, 2))
    return crashed(run, *given, addr=TABLE + 4 * HUGE, registers=registers, stack_of=stack)


@needs_capstone
def test_statistics_for_fewer_channels_than_the_input_has_are_named(run: Path) -> None:
    report = norm(run, 2048, NORM)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "`rows` [4, 2048, 2, 2] has 2048 channels, `table` has 100" in summary(report)
    assert "does not check that `table` [100] has so many" in advice(report)


@needs_capstone
@pytest.mark.parametrize(("channels", "stack"), [(100, NORM), (2048, GATHER)], ids=["fits", "no batch norm"])
def test_number_beyond_every_tensor_is_never_certainly_an_index(
    channels: int, stack: list[tuple[str, str]], run: Path
) -> None:
    report = norm(run, channels, stack)
    assert verdict(report) == ("out-of-bounds", "possible")
    assert "channels" not in summary(report)
    assert f"{HUGE}, which led there, is no index of any tensor here" in summary(report)
    assert "index and size tensors" not in advice(report)


SEGMENTS = [
    (s.TORCH_CPU, "at::native::(anonymous namespace)::_segment_reduce_cpu_lengths_backward_kernel(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::_segment_reduce_backward::call(at::Tensor const&, at::Tensor const&)"),
    PYTHON,
]
OF_OFFSETS = [(image, name.replace("lengths", "offsets")) for image, name in SEGMENTS]


@needs_capstone
@pytest.mark.parametrize(
    ("lowest", "highest", "stack", "sums"),
    [
        (4, 10, SEGMENTS, True),
        (0, 10, SEGMENTS, False),  # 0, 0 and 10 fit
        (3, 5, SEGMENTS, True),
        (3, 4, SEGMENTS, False),  # as many
        (-1, 13, SEGMENTS, False),
        (4, 10, OF_OFFSETS, False),
        (4, 10, [SEGMENTS[0], *GATHER[1:]], False),
    ],
    ids=["too long", "may fit", "one too long", "fits", "negative", "offsets", "another operator"],
)
@pytest.mark.parametrize("addr", [WILD, TABLE + 400])
def test_lengths_that_sum_to_more_than_the_rows(
    lowest: int, highest: int, stack: list[tuple[str, str]], sums: bool, addr: int, run: Path
) -> None:
    """By their extremes alone."""
    report = crashed(run, tensor(TABLE, 10, 4), index(lowest, highest), stack_of=stack, addr=addr, mappings=[PROGRAM])
    least = 2 * lowest + highest
    assert (
        f"`rows` [3] ({lowest}..{highest}) sums to {least} or more, and the data has 10 rows" in summary(report)
    ) == sums
    assert advice(report).startswith("Check the lengths before line 41 passes them: `rows` [3]") == sums


@needs_capstone
@pytest.mark.parametrize("in_backward", [True, False])
def test_lengths_that_the_forward_had_checked_were_overwritten_since(in_backward: bool, run: Path) -> None:
    """The forward raises on such lengths."""
    engine = (s.TORCH_CPU, "torch::autograd::Engine::evaluate_function(...)")
    stack = [*SEGMENTS[:-1], *([engine] if in_backward else []), SEGMENTS[-1]]
    report = crashed(run, tensor(TABLE, 10, 4), index(4, 10), stack_of=stack, addr=WILD, mappings=[PROGRAM])
    assert ("probably overwritten since the forward, which checks it" in summary(report)) == in_backward


@pytest.mark.parametrize(
    ("strides", "highest", "name"),
    [((50, 1), 40, "rows.contiguous()"), ((50, 1), None, "rows.contiguous()"), ((50, 1), 41, None), ((5, 1), 40, None)],
    ids=["a copy", "not looked at", "another range", "no gaps"],
)
def test_copy_of_an_index_with_gaps_has_the_name_of_the_variable(
    strides: tuple[int, ...], highest: int | None, name: str | None, run: Path
) -> None:
    """An operator works on a copy without gaps; of other numbers, or a variable that has none, it is no copy."""
    known = {} if highest is None else {"minimum": 0, "maximum": highest}
    held = tensor(INDEX, 3, 5, dtype="int64", strides=strides, **known)
    copy = tensor(INDEX + 0x4000, 3, 5, dtype="int64", strides=(5, 1), minimum=0, maximum=40)
    report = crashed(run, tensor(TABLE, 10, 10), held, copy)
    names = [item.name for item in operator(report).tensors or []]
    assert names == ["table", "rows", name]


@pytest.mark.parametrize(("called", "takes"), [("_fused_adamw_", False), ("gather", True)])
def test_an_optimizers_operator_takes_no_integers(called: str, takes: bool, run: Path) -> None:
    """A pointer to some is left on the stack of what ran before."""
    stack = [GATHER[0], (s.TORCH_CPU, f"at::_ops::{called}::call(at::Tensor const&)"), *GATHER[2:]]
    report = crashed(run, tensor(TABLE, 10, 4), index(1, 3), stack_of=stack)
    assert ("int64" in " ".join(item.dtype or "" for item in operator(report).tensors or [] if item.passed)) == takes
