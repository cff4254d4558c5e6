"""What to do about a unit of FSDP that an `if` skips on some ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import capital, list_words, shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LEAVES, last_of, loops_around
from pytracer.analyze.evidence.syntax.names import elements, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, default_of, own_nodes, parameters, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

SAME_UNITS = "Each unit of FSDP communicates: all ranks must run the same ones in the same order."
_SHARDS = frozenset({"fully_shard", "FSDP", "FullyShardedDataParallel", "wrap"})
_NO_DATA = frozenset({"self", "cls", "epoch", "step", "iteration", "training", "mode", "rank"})
_KINDS = frozenset({"device", "dtype", "requires_grad", "is_cuda", "ndim", "is_leaf"})
_LONGEST, _MOST = 60, 2


def skipped_unit_advice(snapshot: Snapshot, frame: PythonFrame, test: ast.If, line: str, file: str | None) -> str:
    """By what the condition asks: where it is the rank's own data, no other rank can decide for it.

    Args:
        snapshot: Of the rank that ran the unit.
        frame: The line that ran it.
        test: The `if`.
        line: Its line, as in a sentence.
        file: Its file, which may be that of an `__iter__` which gives the units.
    """
    tree = syntax_tree(snapshot, PythonFrame(file=file, line=test.lineno))
    scope = scope_of(tree, test.lineno) if tree is not None else None
    there = file == frame.file and tree is not None and scope_of(tree, frame.line or 0) is scope
    inside = there and spans(test, frame.line or 0)
    last = last_of(test.body)
    if inside:
        how = f"take line {frame.line} out of that branch"
    elif isinstance(last, LEAVES):
        at = line_in(file, last.lineno, frame.file)
        how = f"take the `{type(last).__name__.lower()}` of {at} out"
    else:
        how = "take it out of that branch"
    data = _data_behind(scope, test.test) if scope is not None else []
    if not data:
        ways = "run both ways on all ranks" if inside else f"run the unit on all ranks ({how})"
        return (
            f"See whether {line} came out differently. {SAME_UNITS} Let one rank decide and broadcast it, or {ways} "
            "and multiply by 0 what does not count."
        )
    own = list_words([f"`{name}`" for name in data[:_MOST]])
    return (
        f"{capital(line)} goes by {own}, of which each rank may have data of its own. {SAME_UNITS} Run that unit on "
        f"every rank, also where there is nothing for it: {how}, give it an empty or blank input, and multiply by 0 "
        f"what does not count. Or do not make it a unit of its own{_wrapped_at(snapshot, frame)}."
    )


def _data_behind(scope: Scope, test: ast.expr) -> list[str]:
    """What the function is given of its batch, and that the condition goes back to."""
    if isinstance(scope, ast.Module):
        return []
    reached, new = set[str](), _read(test)
    while new:
        reached |= new
        read = {
            name
            for item in own_nodes(scope)
            for target, value in set_by(item)
            if any(variable(one) in new for one in _targets(target))
            for name in _read(value if value is not None else getattr(item, "iter", target))
        }
        new = read - reached
    return [
        name
        for name in parameters(scope)
        if name in reached and name not in _NO_DATA and not _is_option(default_of(scope, name))
    ]


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    """Each of `a, b = ...`; `found` of `found[n] = ...`."""
    for item in elements(target):
        yield item.value if isinstance(item, ast.Subscript) else item


def _read(node: ast.AST) -> set[str]:
    """The variables, `self.x` as one, whose values it asks for: not of which dtype or on what device they are."""
    if isinstance(node, ast.Attribute) and node.attr in _KINDS:
        return set()
    name = variable(node)
    if name is not None:
        return {name}
    return {name for item in ast.iter_child_nodes(node) for name in _read(item)}


def _is_option(default: ast.expr | None) -> bool:
    """`use_cache=False`, which the model is called with alike."""
    return isinstance(default, ast.Constant) and default.value is not None


def _wrapped_at(snapshot: Snapshot, frame: PythonFrame) -> str:
    """` (line 79, `fully_shard(expert)`)`: the only line that wraps layers in a loop."""
    found = [
        (file, item)
        for file, tree in program_files(snapshot, [frame]).items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _SHARDS and loops_around(tree, item.lineno)
    ]
    if len(found) != 1:
        return ""
    file, call = found[0]
    return f" ({line_in(file, call.lineno, frame.file)}, `{shortened(ast.unparse(call), _LONGEST)}`)"
