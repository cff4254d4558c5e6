"""Which argument an assertion in a kernel is about: from small programs, their launches and what was recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.evidence.cuda.checked_calls import BRACKETS, SIGNATURES
from pytracer.analyze.known.device_assertions import meanings
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary
from tests.support.synth import Box

ERROR, ASSERT = "torch.AcceleratorError", "CUDA error: device-side assert triggered"
FUNCTIONAL = "/x/site-packages/torch/nn/functional.py"
HEAD = "/pytorch/aten/src/ATen/native/cuda/"
PLACE = "block: [0,0,0], thread: [1,0,0] Assertion"
NLL = f"{HEAD}Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: {PLACE} `t >= 0 && t < n_classes` failed."
INDEX = (
    f"{HEAD}IndexKernel.cu:111: operator(): {PLACE} "
    '`-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
)
SCATTER = (
    f"{HEAD}ScatterGatherKernel.cu:163: operator(): {PLACE} "
    '`idx_dim >= 0 && idx_dim < index_size && "scatter gather kernel index out of bounds"` failed.'
)
EMBEDDING = f"{HEAD}Indexing.cu:1553: indexSelectSmallIndex: {PLACE} `srcIndex < srcSelectDimSize` failed."
NAMES = {NLL: "nll_loss_forward", INDEX: "index", SCATTER: "gather", EMBEDDING: "index_select"}
WITHIN = {NLL: "cross_entropy", EMBEDDING: "embedding"}
START = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def reported(
    run: Path,
    program: str,
    assertion: str,
    launched: tuple[str, str],
    raised: tuple[str, str],
    variables: dict[str, str] | None = None,
    *,
    within: str | None = None,
    changed: bool = False,
    blocking: bool = False,
    backward: tuple[str, str] | None = None,
    waited: bool = True,
) -> Any:
    """`launched`, `raised`: function and a part of the line, of which there is one in the program."""
    run.mkdir(exist_ok=True)
    file = run / "train.py"
    text = START + program
    file.write_text(text, encoding="utf-8")
    if not changed:
        os.utime(file, (0, 0))
    lines = [number for number, line in enumerate(text.splitlines(), 1) if launched[1] in line]
    place = (launched[0], str(file), lines[0])
    met = next(number for number, line in enumerate(text.splitlines(), 1) if raised[1] in line)
    box = Box(pid=101, ppid=99, environment={"CUDA_LAUNCH_BLOCKING": "1"} if blocking else {})
    box.devices.segment(0x7F60_0000_0000, 20 << 20)
    inner = within or WITHIN.get(assertion)
    by = box.site((inner, FUNCTIONAL, 100), place) if inner else box.code(*place)
    if backward is not None:
        box.device_op(f"aten::{NAMES[assertion]}", by, [0x7F60_0000_0000], sequence_nr=7)
        if waited:
            box.device_op("aten::_local_scalar_dense", by, [0x7F60_0000_0000])
        box.device_op(f"aten::{backward[1]}", box.node(backward[0], 7), [0x7F60_0000_0000])
    elif not blocking:
        box.device_op(f"aten::{NAMES[assertion]}", by, [])
    box.kernel_assertion(assertion)
    stack = [(raised[0], str(file), met)]
    if blocking and inner:
        stack.insert(0, (inner, FUNCTIONAL, 100))
    held = [{"name": name, "value": value} for name, value in (variables or {}).items()]
    box.at(500).exception(ERROR, ASSERT, stack, variables=held).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    return build_report(s.load(run, box, launcher=launcher))


LABELS = """def main(model, images):
    labels = torch.arange(512) % 10 + 1
    labels[0] = 255
    logits = model(images)
    loss = F.cross_entropy(
        logits,
        labels.cuda(),
    )
    print(loss.item())
"""


def test_the_target_of_a_loss_is_named_with_its_lines_and_the_number_of_classes(run: Path) -> None:
    """A statement of several lines; the labels are in the CPU's memory, so their range was recorded."""
    held = {"labels": "[512] int64, 1..255", "logits": "[512, 10] float32 on cuda:0"}
    report = reported(run, LABELS, NLL, ("main", "loss = F"), ("main", "item()"), held)
    told = evidence(report)
    assert "what the kernel checks is `labels` of `F.cross_entropy(logits, labels.cuda())` at train.py:8" in told
    assert (
        "`labels` is set at train.py:5 (`labels = torch.arange(512) % 10 + 1`) and train.py:6 (`labels[0] = 255`)"
        in told
    )
    assert "at the exception, `labels` was [512] int64, 1..255" in told
    assert "launched by aten::nll_loss_forward at train.py:8 in main, which checks `labels`, met" in summary(report)
    assert advice(report).startswith(
        "`labels` held 1 to 255 at the exception, and `logits` has 10 classes, 0 to 9: pass ignore_index=255"
    )


def test_with_launch_blocking_the_raising_line_launched_it(run: Path) -> None:
    """No launch was recorded."""
    held = {"labels": "[512] int64 on cuda:0", "logits": "[512, 300] float32 on cuda:0"}
    report = reported(run, LABELS, NLL, ("main", "loss = F"), ("main", "loss = F"), held, blocking=True)
    assert advice(report).startswith(
        "Print `labels.min()` and `labels.max()` before train.py:8: `logits` has 300 classes"
    )


def test_without_recorded_values_they_are_to_be_printed(run: Path) -> None:
    """They are in the device's memory."""
    held = {"labels": "[512] int64 on cuda:0", "logits": "[512, 300] float32 on cuda:0"}
    report = reported(run, LABELS, NLL, ("main", "loss = F"), ("main", "item()"), held)
    assert advice(report).startswith(
        "Print `labels.min()` and `labels.max()` before train.py:8: `logits` has 300 classes, 0 to 299. `labels` is "
        "set at train.py:5 and train.py:6 (`labels[0] = 255`). Check target.min()"
    )


@pytest.mark.parametrize(
    ("skipped", "wrong"), [("", True), (", ignore_index=255", False), (", ignore_index=unknown()", False)]
)
def test_a_label_that_the_loss_skips_is_not_called_wrong(run: Path, skipped: str, wrong: bool) -> None:
    """Or may skip."""
    program = LABELS.replace("labels.cuda(),", f"labels.cuda(){skipped},")
    held = {"labels": "[512] int64, 1..255", "logits": "[512, 10] float32 on cuda:0"}
    report = reported(run, program, NLL, ("main", "loss = F"), ("main", "item()"), held)
    assert ("held 1 to 255" in advice(report)) is wrong
    assert ("Print `labels.min()`" in advice(report)) is not wrong


def test_a_layer_is_known_by_what_made_it(run: Path) -> None:
    """The embedding's rows are a constant of the program."""
    program = """ROWS = 100
class Net(nn.Module):
    def __init__(self):
        self.embed = nn.Embedding(ROWS, 8)
    def forward(self, tokens):
        ids = tokens + 1
        out = self.embed(ids)
        return out.sum().item()
"""
    report = reported(run, program, EMBEDDING, ("Net.forward", "out = "), ("Net.forward", "return out"))
    assert (
        "Print `ids.min()` and `ids.max()` before train.py:10: `self.embed` has 100 rows, 0 to 99. `ids` is set at "
        in (advice(report))
    )


def test_a_class_of_the_program_with_such_a_name_is_not_a_layer(run: Path) -> None:
    """It may look up something else."""
    program = """class Embedding(nn.Module):
    pass
def main(tokens):
    embed = Embedding(100, 8)
    out = embed(tokens)
    print(out.sum().item())
"""
    report = reported(run, program, EMBEDDING, ("main", "out = "), ("main", "print"))
    assert "what the kernel checks" not in evidence(report) and "Print `" not in advice(report)


def test_of_two_calls_in_a_line_neither_is_called_the_one(run: Path) -> None:
    """Both arguments are to be printed, even if one of them was seen to be out of range."""
    program = """def main(q, a, b):
    loss = q.gather(1, a) + q.gather(1, b)
    print(loss.item())
"""
    held = {"q": "[8, 4] float32 on cuda:0", "a": "[8, 1] int64, 0..9", "b": "[8, 1] int64, 0..3"}
    report = reported(run, program, SCATTER, ("main", "loss ="), ("main", "print"), held)
    assert "what the kernel checks is one of `a` or `b` of `q.gather(1, a)` and `q.gather(1, b)`" in evidence(report)
    assert advice(report).startswith(
        "Print min() and max() of `a` and `b` before train.py:5: `q` has 4 in dimension 1, 0 to 3."
    )
    assert "which checks" not in summary(report)


def test_functions_of_other_modules_are_not_torchs(run: Path) -> None:
    """torch_scatter's arguments are in another order, and a shadowed name is no module."""
    program = """import torch_scatter
def main(values, index, torch):
    a = torch_scatter.gather(values, index, 0)
    print(a.item())
def step(values, index, torch):
    b = torch.gather(values, 0, index)
    print(b.item(), 1)
"""
    report = reported(run, program, SCATTER, ("main", "a = "), ("main", "print(a"))
    assert "what the kernel checks" not in evidence(report)
    report = reported(run / "other", program, SCATTER, ("step", "b = "), ("step", "print(b"))
    assert "what the kernel checks is `index`" not in evidence(report)


def test_an_operator_that_a_library_launched_is_not_of_the_lines_own_calls(run: Path) -> None:
    """The program's line called the library, which indexed something."""
    program = """def main(model, rows, x):
    out = model(x[rows])
    print(out.item())
"""
    report = reported(run, program, INDEX, ("main", "out = "), ("main", "print"), within="forward")
    assert "what the kernel checks" not in evidence(report)
    report = reported(run / "other", program, INDEX, ("main", "out = "), ("main", "print"))
    assert "what the kernel checks is `rows` of `x[rows]` at train.py:5" in evidence(report)


def test_masks_slices_and_numbers_between_brackets_are_no_indices(run: Path) -> None:
    """A value that is written is checked in the same way."""
    program = """def main(x, rows, i, keep):
    x[rows, i, 2:5, keep] = x[x > 0][:1] + {}["a"][0]
    print(x.sum().item())
"""
    held = {
        "x": "[9, 8, 7, 6] float32 on cuda:0",
        "i": "3",
        "keep": "[6] bool on cuda:0",
        "rows": "[4] int64 on cuda:0",
    }
    report = reported(run, program, INDEX, ("main", "x[rows"), ("main", "print"), held)
    assert "what the kernel checks is `rows` of `x[rows, i, 2:5, keep]` at train.py:5" in evidence(report)
    assert "before train.py:5: `x` has 9 in dimension 0, -9 to 8." in advice(report)


def test_source_that_changed_says_nothing(run: Path) -> None:
    """The line may be another one."""
    report = reported(run, LABELS, NLL, ("main", "loss = F"), ("main", "item()"), changed=True)
    assert "what the kernel checks" not in evidence(report)


def test_a_variable_that_was_bound_again_has_no_recorded_value(run: Path) -> None:
    """What was recorded is the result."""
    program = """def main(values, index):
    values = values.gather(1, index)
    index = index[:2]
    print(values.item())
"""
    held = {"values": "[8, 1] float32 on cuda:0", "index": "[2, 1] int64, 0..9"}
    report = reported(run, program, SCATTER, ("main", "values = "), ("main", "print"), held)
    assert "what the kernel checks is `index` of `values.gather(1, index)`" in evidence(report)
    assert "at the exception" not in evidence(report) and " has 1 in" not in advice(report)


def test_a_number_below_zero_that_a_line_writes_is_told(run: Path) -> None:
    """It is followed through a loop over what a function returns, and to a function's only call."""
    program = """SKIP = -100
def load(count):
    made = []
    for _ in range(count):
        labels = torch.randint(0, 9, (8,))
        labels[:3] = SKIP
        made.append((torch.ones(8, 9), labels))
    return made
def score(logits, labels):
    return logits.gather(1, labels.unsqueeze(1))
def main():
    for step, (logits, labels) in enumerate(load(3)):
        out = score(logits.cuda(), labels.cuda())
    print(out.sum().item())
"""
    report = reported(run, program, SCATTER, ("score", "return logits"), ("main", "print"))
    assert advice(report).startswith(
        "Look first at train.py:9, which writes -100 into `labels`; gather takes no number below 0: replace -100 "
        "before, or leave such elements out. `labels` is set at train.py:8 and train.py:9 (`labels[:3] = SKIP`)."
    )
    replaced = program.replace("labels.unsqueeze(1)", "labels.clamp(min=0).unsqueeze(1)")
    report = reported(run / "other", replaced, SCATTER, ("score", "return logits"), ("main", "print"))
    assert "Look first" not in advice(report) and "Print min() and max() of `labels.clamp(min=0)`" in advice(report)


def test_what_an_autograd_function_saved_is_followed_to_its_call(run: Path) -> None:
    """Its backward launched the kernel."""
    program = """class Pick(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(table, ids)
        return table[ids]
    @staticmethod
    def backward(ctx, grad):
        table, ids = ctx.saved_tensors
        out = table.gather(0, ids)
        return out, None
def main(table):
    rows = torch.randint(1, 50, (8,))
    loss = Pick.apply(table, rows.cuda()).sum()
    loss.backward()
    print(loss.item())
"""
    report = reported(run, program, SCATTER, ("Pick.backward", "out ="), ("main", "print"))
    assert "`ids` is made from `rows`, set at train.py:15 (`rows = torch.randint(1, 50, (8,))`)" in evidence(report)
    other = program.replace("print(", "Pick.apply(table, table)\n    print(")
    report = reported(run / "other", other, SCATTER, ("Pick.backward", "out ="), ("main", "print"))
    assert "`ids` is set at train.py:11 (`table, ids = ctx.saved_tensors`)" in evidence(report)


def test_a_function_of_which_two_calls_are_known_is_not_followed(run: Path) -> None:
    """Either may have passed it; and of `get`, which a dict has, too, no call is known."""
    program = """def score(logits, labels):
    return logits.gather(1, labels)
def get(logits, labels):
    return logits.gather(2, labels)
def main(x, options):
    first = torch.zeros(3)
    out = score(x, first)
    if out.sum() > 0:
        out = score(x, options.get(x, first))
    print(out.sum().item())
"""
    for number, function in enumerate(("score", "get")):
        part = f"return logits.gather({number + 1}"
        report = reported(run / function, program, SCATTER, (function, part), ("main", "print"))
        assert "what the kernel checks is `labels`" in evidence(report) and "`first`" not in evidence(report)


def test_what_a_loop_sets_for_its_next_round_is_told(run: Path) -> None:
    """The line above the loop is not the only one; a line that sets it in each round before is."""
    program = """def main(table, start, ids):
    token = start
    ids = ids + 1
    for _ in range(9):
        rows = table[token]
        token = rows.argmax(-1)
        ids = ids.clamp(max=3)
        more = table[ids]
    print(rows.sum().item())
"""
    report = reported(run, program, INDEX, ("main", "rows = "), ("main", "print"))
    assert "`token` is set at train.py:5 (`token = start`) and train.py:9 (`token = rows.argmax(-1)`)" in evidence(
        report
    )
    report = reported(run / "other", program, INDEX, ("main", "more = "), ("main", "print"))
    assert "`ids` is set at train.py:10 (`ids = ids.clamp(max=3)`)" in evidence(report)
    assert "train.py:6" not in evidence(report)


def test_a_name_that_a_comprehension_binds_is_not_the_functions_variable(run: Path) -> None:
    """`y` is another one."""
    program = """def main(logits, targets):
    y = torch.zeros(3)
    losses = [F.cross_entropy(x, y) for x, y in zip(logits, targets)]
    print(len(losses), torch.stack(losses).mean().item())
"""
    report = reported(run, program, NLL, ("main", "losses = "), ("main", "print"), {"y": "[3] float32"})
    assert "what the kernel checks is `y`" in evidence(report)
    assert "train.py:5" not in evidence(report) and "at the exception" not in evidence(report)


CHANGED = """def record(actions):
    numbered = actions.data
    numbered += 1
def main(logp, actions):
    chosen = logp.gather(1, actions)
    print(chosen.sum().item())
    record(actions)
    chosen.sum().backward()
"""
SAME_CHECK = "passed the same check in the forward pass, so its values have changed since"
GATHER = ("GatherBackward0", "scatter_add_")


def test_an_index_that_passed_the_check_of_the_forward_pass_was_changed_since(run: Path) -> None:
    """The line that takes the memory behind autograd's back is named, also in a function that is given it."""
    report = reported(run, CHANGED, SCATTER, ("main", "gather"), ("main", "backward"), backward=GATHER)
    assert f"`actions` of `logp.gather(1, actions)` {SAME_CHECK}" in summary(report)
    assert "Do not write into the memory of `actions` between train.py:8 and the backward pass" in advice(report)
    assert "Look first at `actions.data` at train.py:5, which is the same memory" in advice(report)


@pytest.mark.parametrize(
    ("program", "backward", "waited"),
    [
        (CHANGED, GATHER, False),  # the forward kernel may be the one that failed
        (CHANGED, ("MaxBackward0", "scatter_"), True),
        (CHANGED.replace("logp.gather(1, actions)", "logp.gather(1, actions) + logp.gather(1, other)"), GATHER, True),
        (CHANGED.replace("logp.gather(1, actions)", "picked(logp)  # gather"), GATHER, True),
    ],
)
def test_an_index_is_not_called_changed_where_its_check_is_not_known_to_have_passed(
    run: Path, program: str, backward: tuple[str, str], waited: bool
) -> None:
    """Nor where another operator checked, or it is unclear which call of the line it was."""
    places = ("main", "gather"), ("main", "backward")
    assert SAME_CHECK not in summary(reported(run, program, SCATTER, *places, backward=backward, waited=waited))


def test_each_parameter_of_the_table_is_one_of_its_function() -> None:
    """And each function is known."""
    for item in meanings():
        for check in item.checks:
            function, _, name = check.partition(".")
            assert check == BRACKETS or name in SIGNATURES[function]
        assert all("{}" in part for part in item.ask)
