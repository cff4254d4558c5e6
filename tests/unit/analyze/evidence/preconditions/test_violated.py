"""An argument that does not fit is named with the line that passes it; a look-alike must not be."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, HeldNumber, Holder, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

MEAN, INPUT, WILD = 0x5581_0000_1000, 0x5581_0010_0000, 0x1357_9BDF_0240
STACK = [
    (s.TORCH_CPU, "at::native::cdist_backward_kernel(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::_cdist_backward::call(at::Tensor const&, double)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
CALL = "torch.ops.aten._cdist_backward.default(x, one, other, 2.0, mean)"
PROGRAM_TEXT = """import torch


def distances(x, mean, one, other):
    {call}


def step(x, mean, one, other):
    y = distances(x, mean, one, other)
    return y.sum()
"""
MALLOC = [
    ("/usr/lib/libc.so.6", "malloc_printerr"),
    ("/usr/lib/libc.so.6", "_int_free"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
DAMAGED: dict[str, Any] = {
    "signal": 6,
    "code": -6,
    "sender_pid": 101,
    "abort_text": "free(): invalid next size (normal)\n",
    "stack_of": MALLOC,
}


def tensor(base: int, *sizes: int) -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    return Argument(
        base ^ 0xFF, base, elements, 0, sizes, len(sizes), "float32", "cpu", minimum=None, maximum=None, frame=0,
        outer_frame=2, register=None, how="reference",
    )  # fmt: skip


def report_of(
    run: Path, *, call: str = CALL, mean: int = 16, function: str = "distances", highest: int | None = None, **how: Any
) -> Report:
    """`highest`: `mean` is an integer tensor with that maximum."""
    script = run / "train.py"
    script.write_text(PROGRAM_TEXT.format(call=call), encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    line = 5 if function == "distances" else 10
    frames = [("distances", str(script), 5), ("step", str(script), 9)] if line == 5 else [("step", str(script), 10)]
    frame = PythonFrame(function, str(script), line)
    holders = (
        Holder("local", "x", INPUT, frame, True, elements=1024),
        Holder("local", "mean", MEAN, frame, True, elements=mean),
    )
    box = Box(pid=101).alloc(MEAN, 4 * mean).alloc(INPUT, 4096)
    how = {
        "stack_of": STACK,
        **({} if "abort_text" in how else {"addr": WILD}),
        "registers": {"rdx": WILD},
        "mappings": [PROGRAM],
        **how,
    }
    last = tensor(MEAN, mean)
    if highest is not None:
        last = replace(last, dtype="int64", minimum=1, maximum=highest)
    return died(run, box=box, python=frames, holders=holders, arguments=(tensor(INPUT, 4, 32, 8), last), **how)


def test_argument_of_another_size_is_named_with_what_it_must_fit(run: Path) -> None:
    """The line's syntax says which variable is which argument."""
    report = report_of(run)
    words = "`mean` [16] has 16 elements, where _cdist_backward takes 1024 for granted (elements of `x` [4, 32, 8])"
    assert words in summary(report)


@pytest.mark.parametrize(("highest", "named"), [(1 << 62, True), (4, False)])
def test_result_without_memory_explains_an_access_at_null(highest: int, named: bool, run: Path) -> None:
    """Of operators that are known for it; the look-alike has numbers that fit."""
    stack = [(s.TORCH_CPU, "at::_ops::repeat_interleave_self_Tensor::call(at::Tensor const&)"), *STACK[-1:]]
    at_null: dict[str, Any] = {"addr": 0, "registers": {"rax": 0}, "stack_of": stack}
    report = report_of(run, call="torch.repeat_interleave(x, mean)", highest=highest, **at_null)
    said = f"`mean` [16] holds {highest}, where repeat_interleave takes less than"
    assert (said in summary(report)) == named
    assert verdict(report)[0] == ("out-of-bounds" if named else "null-dereference")
    assert ("Check the numbers of `mean` (another byte order" in advice(report)) == named


def test_other_operators_do_not_explain_an_access_at_null(run: Path) -> None:
    assert verdict(report_of(run, addr=0, registers={"rax": 0}))[0] == "null-dereference"


@pytest.mark.parametrize(
    "call",
    [
        CALL.replace("torch.ops.aten._cdist_backward.default", "distances._cdist_backward"),  # of the program's own
        CALL.replace("x, one", "*given"),  # which one is which?
        CALL.replace("_cdist_backward", "native_dropout"),
    ],
)
def test_what_the_line_passes_elsewhere_is_not_held_against_an_operator(call: str, run: Path) -> None:
    stack = [(s.TORCH_CPU, "at::native::other(at::Tensor const&)"), *STACK[-1:]]
    assert "for granted" not in summary(report_of(run, call=call, stack_of=stack))


def test_size_that_fits_is_not_blamed(run: Path) -> None:
    assert "for granted" not in summary(report_of(run, mean=1024))


def test_damaged_heap_leads_back_to_the_call_that_wrote_too_far(run: Path) -> None:
    """The call has returned; its function is one that the running one called, with variables that are still there."""
    report = report_of(run, function="step", **DAMAGED)
    assert "`mean` [16] has 16 elements, where _cdist_backward at line 5 takes 1024 for granted" in summary(report)
    assert "Compare `mean` [16]" in advice(report) and "line 5" in advice(report)


def test_damaged_heap_is_not_laid_to_a_call_whose_arguments_fit(run: Path) -> None:
    report = report_of(run, function="step", mean=1024, **DAMAGED)
    assert "for granted" not in summary(report)


def test_fault_in_the_operator_whose_argument_does_not_fit_is_certainly_that(run: Path) -> None:
    """Wherever it leads: here into memory that was a tensor's before."""
    report = report_of(run)
    assert verdict(report) == ("out-of-bounds", "certain")
    unnamed = [(s.TORCH_CPU, "sgemm_kernel"), STACK[-1]]
    assert verdict(report_of(run, stack_of=unnamed)) == ("out-of-bounds", "likely")


@pytest.mark.parametrize("function", ["_int_malloc", "unlink_chunk.constprop.0"])
def test_fault_of_the_allocator_below_such_an_operator_is_damage_that_was_done_before(function: str, run: Path) -> None:
    """A call before this one wrote too far: the operator asked for memory only."""
    library = "/usr/lib/libc.so.6"
    stack = [(library, function), (library, "posix_memalign"), (s.TORCH_CPU, "at::native::empty_cpu"), *STACK]
    report = report_of(run, stack_of=stack)
    assert verdict(report)[0] == "heap-corruption", summary(report)
    assert "inside the allocator" in summary(report) and "takes 1024 for granted" in summary(report)
    assert "out of bounds" not in summary(report)


def test_fault_after_such_a_call_is_what_it_had_written(run: Path) -> None:
    other = [(s.TORCH_CPU, "at::_ops::sum::call(at::Tensor const&)"), STACK[-1]]
    report = report_of(run, function="step", stack_of=other)
    assert verdict(report) == ("heap-corruption", "likely")
    assert "by a pointer that had been overwritten" in summary(report) and "at line 5" in summary(report)
    assert verdict(report_of(run, function="step", mean=1024, stack_of=other))[0] == "wild-pointer"


CTC = """import torch
from torch import nn

criterion = nn.CTCLoss()


def train(x, mean):
    loss = criterion({log_probs}, mean, 4, 4)
    loss.backward()
"""


def of_ctc(run: Path, log_probs: str, most: int, **how: Any) -> Report:
    script = run / "ctc.py"
    script.write_text(CTC.format(log_probs=log_probs), encoding="utf-8")
    os.utime(script, (0, 0))
    frame = PythonFrame("train", str(script), 9)
    holders = (
        Holder("local", "x", INPUT, frame, True, elements=1024),
        Holder("local", "mean", MEAN, frame, True, elements=16),
    )
    targets = replace(tensor(MEAN, 16), dtype="int64", minimum=0, maximum=most)
    box = Box(pid=101).alloc(MEAN, 128).alloc(INPUT, 4096)
    return died(
        run, box=box, python=[("train", str(script), 9)], holders=holders, arguments=(tensor(INPUT, 4, 32, 8), targets),
        mappings=[PROGRAM], **DAMAGED, **how,
    )  # fmt: skip


def test_module_that_calls_the_operator_is_followed(run: Path) -> None:
    report = of_ctc(run, "x", 9)
    assert "`mean` [16] holds 9, where ctc_loss at line 8 takes less than 8 for granted" in summary(report)


def test_labels_inside_of_the_classes_are_not_blamed(run: Path) -> None:
    report = of_ctc(run, "x", 7)
    assert "for granted" not in summary(report) and "First suspect is ctc_loss" not in advice(report)


def test_what_the_operator_does_not_check_is_said_where_nothing_decides_it(run: Path) -> None:
    """A suspect, not a cause: the headline says so."""
    report = of_ctc(run, "model(x)", 9, images=())
    assert "; the first suspect is ctc_loss at line 8, which does not check that" in summary(report)
    assert "First suspect is ctc_loss at line 8, which does not check that `mean.max() < model(x).size(-1)`" in advice(
        report
    )


CELL = """import torch
from torch import nn

cell = nn.{module}(5, 6{options})


def step(x, state):
    return cell(x, {state})
"""
BAG_STACK = [
    (s.TORCH_CPU, "at::native::_embedding_bag_cpu_impl_out"),
    (s.TORCH_CPU, "at::_ops::embedding_bag_padding_idx::call(at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
CELL_STACK = [
    (s.TORCH_CPU, "at::_ops::sigmoid_::call(at::Tensor&)"),
    (s.TORCH_CPU, "at::native::lstm_cell(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::lstm_cell::call(at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]


def of_module(
    run: Path,
    x: Argument,
    state: Argument,
    *,
    module: str,
    given: str = "state",
    options: str = "",
    name: str | None = None,
    above: tuple[tuple[str, str, int], ...] = (),
    **how: Any,
) -> Report:
    """A module of torch at line 8, called with `x` and `state`."""
    run.mkdir(exist_ok=True)
    script = run / "cell.py"
    script.write_text(CELL.format(module=module, state=given, options=options), encoding="utf-8")
    os.utime(script, (0, 0))
    frame, other = PythonFrame("step", str(script), 8), PythonFrame("step", str(script), 8)
    name = name or ("state[0]" if module == "LSTMCell" and given == "state" else "state")
    holders = (
        Holder("local", "x", INPUT, frame, True, elements=x.elements),
        Holder("local", name, MEAN, frame, True, elements=state.elements),
        Holder("local", name, INPUT, other, False, elements=7),  # of another thread at the same line
    )
    box = Box(pid=101).alloc(MEAN, 4 * state.elements).alloc(INPUT, 4096)
    return died(
        run, box=box, python=[*above, ("step", str(script), 8)], holders=holders, arguments=(x, state),
        **{"addr": WILD, "registers": {"rdx": WILD}, "mappings": [PROGRAM], **how},
    )  # fmt: skip


@pytest.mark.parametrize(("module", "given"), [("LSTMCell", "state"), ("LSTMCell", "(state, x)"), ("GRUCell", "state")])
def test_cell_takes_a_batch_of_states_with_a_batch_alone(module: str, given: str, run: Path) -> None:
    stack = [(image, (name or "").replace("lstm", module[:-4].lower())) for image, name in CELL_STACK]
    how: dict[str, Any] = {"module": module, "given": given, "stack_of": stack}
    report = of_module(run, tensor(INPUT, 5), tensor(MEAN, 6, 6), **how)
    assert "[6, 6] has 2 dimensions, where " in summary(report)
    assert f"{module} takes 1 for granted (dimensions of `x` [5])" in summary(report)
    assert advice(report).startswith(f"Give `x` and `{given}` a batch dimension of the same size")
    fits = of_module(run / "2", tensor(INPUT, 4, 5), tensor(MEAN, 4, 6), **how)
    assert "for granted" not in summary(fits) and "do not fit" not in summary(fits)


@pytest.mark.parametrize(
    ("options", "offsets", "words"),
    [
        (", include_last_offset=True", 1, "takes at least 2 for granted: with include_last_offset"),
        (", include_last_offset=True", 2, None),
        ("", 1, None),
    ],
    ids=["no bag", "one bag that ends", "one bag"],
)
def test_bags_end_at_the_last_offset(options: str, offsets: int, words: str | None, run: Path) -> None:
    """`state` are the offsets."""
    ids = replace(tensor(INPUT, 22), dtype="int64", minimum=0, maximum=3)
    ends = replace(tensor(MEAN, offsets), dtype="int64", minimum=0, maximum=0)
    report = of_module(run, ids, ends, module="EmbeddingBag", options=options, stack_of=BAG_STACK)
    assert ("for granted" in summary(report)) == (words is not None)
    if words is not None:
        assert words in summary(report) and verdict(report) == ("out-of-bounds", "certain")
        assert "`torch.tensor([0, x.numel()])` for one bag" in advice(report)
        assert not [item for item in report.findings or [] if item.id == "wild-pointer"]


def test_cells_and_bags_are_no_suspects_of_damage(run: Path) -> None:
    """They die at once: what the allocator finds overwritten is of another call."""
    report = of_module(run, tensor(INPUT, 5), tensor(MEAN, 6, 6), module="LSTMCell", **{**DAMAGED, "addr": 0})
    assert verdict(report)[0] == "heap-corruption"
    assert "for granted" not in summary(report) and "LSTMCell" not in advice(report)


def test_tensor_that_is_taken_for_a_tuple_is_one_of_states(run: Path) -> None:
    how: dict[str, Any] = {"module": "LSTMCell", "name": "state", "stack_of": CELL_STACK}
    report = of_module(run, tensor(INPUT, 5), tensor(MEAN, 2, 6, 6), **how)
    assert "`state[0]` [6, 6] has 2 dimensions, where LSTMCell takes 1 for granted" in summary(report)
    fits = of_module(run / "2", tensor(INPUT, 6, 5), tensor(MEAN, 2, 6, 6), **how)
    assert "for granted" not in summary(fits)


@pytest.mark.parametrize(
    ("between", "known"), [(("Module._call_impl",), True), (("Decoder.forward", "Module._call_impl"), False)]
)
def test_module_of_a_list_is_known_by_the_forward_that_runs(between: tuple[str, ...], known: bool, run: Path) -> None:
    """The file does not say what `cell` is; a module of a library that has such a cell takes other arguments."""
    folder = "/usr/lib/python3/site-packages"
    own = {"Module._call_impl": f"{folder}/torch/nn/modules/module.py", "Decoder.forward": f"{folder}/speech/net.py"}
    above = (
        ("LSTMCell.forward", f"{folder}/torch/nn/modules/rnn.py", 1757),
        *((name, own[name], 40) for name in between),
    )
    report = of_module(
        run, tensor(INPUT, 5), tensor(MEAN, 6, 6), module="Cells", name="state[0]", above=above, stack_of=CELL_STACK
    )
    assert ("where LSTMCell takes 1 for granted" in summary(report)) == known


POOL_STACK = [
    (s.TORCH_CPU, "at::native::(anonymous namespace)::cpu_max_pool_backward<float, true>"),
    (s.TORCH_CPU, "at::_ops::max_pool3d_with_indices_backward::call(at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
POOL = """import torch


class Cache:
    def get(self, rows):
        return self.store[rows.dtype]


class Pool:
    def pull(self, x):
        k = [2, 2, 2]
        return torch.ops.aten.max_pool3d_with_indices_backward(x{0}, x, k, k, k, k, False, self.idx)

    def put(self, idx):
        self.idx = Cache.get(idx)
"""


def of_pool(run: Path, rows: int, method: str = ".contiguous()") -> Report:
    """A pooling's backward of a batch of 4, with the indices of `rows`, which a global container holds, too."""
    script = run / "pool.py"
    script.write_text(POOL.format(method), encoding="utf-8")
    os.utime(script, (0, 0))
    frame, elements = PythonFrame("Pool.pull", str(script), 12), 64 * rows
    holders = (
        Holder("local", "x", INPUT, frame, True, elements=256),
        Holder("local", "self.idx", MEAN, frame, True, elements=elements),
        Holder("global", "CACHE.store[?]", MEAN, frame, True, elements=elements),
    )
    indices = replace(tensor(MEAN, rows, 8, 2, 2, 2), dtype="int64", minimum=0, maximum=7)
    box = Box(pid=101).alloc(MEAN, 8 * elements).alloc(INPUT, 4096)
    return died(
        run, box=box, python=[("Pool.pull", str(script), 12)], holders=holders, stack_of=POOL_STACK,
        arguments=(tensor(INPUT, 4, 8, 2, 2, 2), indices), addr=WILD, registers={"rdx": WILD}, mappings=[PROGRAM],
    )  # fmt: skip


def test_indices_of_another_batch_size_are_named_with_what_set_and_keeps_them(run: Path) -> None:
    """Through `.contiguous()`, which changes no size."""
    report = of_pool(run, 2)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "size 0 of `self.idx` [2, 8, 2, 2, 2] is 2, where max_pool3d_with_indices_backward takes 4" in summary(
        report
    )
    assert "`self.idx` is set at line 15 (`self.idx = Cache.get(idx)`), and `CACHE.store[?]` holds the same" in advice(
        report
    )


def test_indices_of_the_same_batch_size_are_not_blamed(run: Path) -> None:
    report = of_pool(run, 4)
    assert "for granted" not in summary(report) and "CACHE" not in advice(report)


HOOK = """def compute(self, module):
    g = getattr(module, self.name + "_g")
    v = getattr(module, self.name + "_v")
    return torch._weight_norm(v, g, self.dim)


def hook(self, module, inputs):
    setattr(module, self.name, self.compute(module))
"""
BLOCK = """class Block:
    def forward(self, x):
        return self.conv(x)
"""


def of_hook(run: Path, rows: int, dim: int = 0, inner: str = "self.compute(module)") -> Report:
    """The heap is damaged when torch's hook sets what it made of `weight_g` of so many rows, `weight_v` has 32."""
    library = run.parent / run.name / "lib" / "site-packages" / "torch" / "nn" / "utils" / "weight_norm.py"
    library.parent.mkdir(parents=True)
    library.write_text(f"import torch\n\n\n{HOOK.replace('self.compute(module)', inner)}", encoding="utf-8")
    script = run / "block.py"
    script.write_text(BLOCK, encoding="utf-8")
    for path in (library, script):
        os.utime(path, (0, 0))
    frame = PythonFrame("WeightNorm.hook", str(library), 11)
    module = str(library.parents[1] / "modules" / "module.py")
    holders = (
        Holder("local", "module._parameters['weight_g']", MEAN, frame, True, elements=rows),
        Holder("local", "module._parameters['weight_v']", INPUT, frame, True, elements=256),
    )
    box = Box(pid=101).alloc(MEAN, 4 * rows).alloc(INPUT, 4096)
    stack = [("WeightNorm.hook", str(library), 11), ("Module._call_impl", module, 1884)]
    return died(
        run, box=box, python=[*stack, ("Block.forward", str(script), 3)], holders=holders,
        arguments=(tensor(INPUT, 32, 8), tensor(MEAN, rows, 1)), mappings=[PROGRAM],
        numbers=(HeldNumber("self.dim", dim, frame, 0),), **DAMAGED,
    )  # fmt: skip


def test_call_of_the_line_of_torch_that_runs_is_held_against_damage(run: Path) -> None:
    """What its function reads by name from the module is recorded as the module's."""
    report = of_hook(run, 8)
    assert (
        "`self.conv.weight_g` [8, 1] has 8 elements, where _weight_norm at torch/nn/utils/weight_norm.py:7"
        in summary(report)
    )
    assert "Compare `self.conv.weight_g` [8, 1] with `self.conv.weight_v` [32, 8] before line 3 runs the" in advice(
        report
    )


@pytest.mark.parametrize(
    ("rows", "dim", "inner"),
    [(32, 0, "self.compute(module)"), (64, 0, "self.compute(module)"), (8, -1, "self.compute(module)"), (8, 0, "None")],
    ids=["fits", "larger", "norm of all", "not called"],
)
def test_call_of_torchs_line_that_fits_is_not_blamed(rows: int, dim: int, inner: str, run: Path) -> None:
    assert "for granted" not in summary(of_hook(run, rows, dim, inner))
