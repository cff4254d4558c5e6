"""A batch that a pipeline's schedule cannot cut into micro-batches of one size."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_PIPELINE = "torch/distributed/pipelining/"
_SIZES = Pattern(r"batch_size|size|shape")


def uneven_micro_batches(at: FailingLine) -> str | None:
    """Where a loss or a layer of a stage finds sizes that differ; both numbers are known."""
    cut = _uneven(at)
    if cut is None:
        return None
    place, batch, count, made = cut
    below = batch - batch % count
    return (
        f"The batch of {batch} at {place} is cut into {count} micro-batches ({made}), which are not of one size, while "
        "the stages receive all in the size of the first: take a batch size that n_microbatches divides "
        f"({below} or {below + count}), and drop_last=True in the DataLoader."
    )


def micro_batch_subject(at: FailingLine) -> str | None:
    """For the headline."""
    cut = _uneven(at)
    return f"the batch of {cut[1]} is not divisible by {cut[2]} micro-batches" if cut is not None else None


def _uneven(at: FailingLine) -> tuple[str, int, int, str] | None:
    if _SIZES.search(at.message) is None or not any(_PIPELINE in (item.file or "") for item in at.stack):
        return None
    made = [
        (at.in_file(file, item.lineno), number)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and (called_name(item) or "").startswith("Schedule")
        if (number := _count(at, item)) is not None
    ]
    if len(made) != 1:
        return None
    for depth, frame in enumerate(at.frames):
        for item in nodes_of(at.files.get(frame.file or "", ast.Module([], []))):
            if not isinstance(item, ast.Call) or item.lineno != frame.line or called_name(item) != "step":
                continue
            given = passed_values(item)
            shapes = [shape_of(at.outer.get(depth, {}).get(ast.unparse(value))) for value in given]
            sizes = {shape.sizes[0] for shape in shapes if shape is not None and shape.sizes}
            batch = next(iter(sizes)) if len(sizes) == 1 else 0
            if batch > made[0][1] and batch % made[0][1]:
                return at.in_file(frame.file, item.lineno), batch, made[0][1], made[0][0]
    return None


def _count(at: FailingLine, call: ast.Call) -> int | None:
    """`n_microbatches=` of a schedule: a number, or a variable that some frame of the stack has."""
    given = keyword_value(call, "n_microbatches")
    given = call.args[1] if given is None and len(call.args) > 1 else given
    if isinstance(given, ast.Constant):
        return given.value if type(given.value) is int and given.value > 0 else None
    held = {
        values[text] for values in at.outer.values() if given is not None and (text := ast.unparse(given)) in values
    }
    value = next(iter(held)) if len(held) == 1 else ""
    return int(value) if value.isdecimal() and int(value) > 0 else None
