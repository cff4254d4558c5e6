"""An index that passed the forward pass's check and fails the same one in the backward pass: its values changed.

Of the operators of torch, `gather` alone is covered: its backward is `scatter_add_` with the saved index, on the same
CUDA stream, along a dimension of the same size (`gather_backward` in ATen/native/TensorAdvancedIndexing.cpp), and both
kernels assert `idx_dim >= 0 && idx_dim < index_size`. Autograd refuses a saved tensor whose version has changed, so
the change is one that it does not count: through `.data`, another library or a kernel of the program's own.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.cuda.assertions import KernelAssertion
from pytracer.analyze.evidence.cuda.checked_arguments import launching_line
from pytracer.analyze.evidence.cuda.checked_calls import checked_calls
from pytracer.analyze.evidence.cuda.launches import Launch
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_NODE, _OPERATOR = "GatherBackward", "scatter_add_"
_CHECK = "ScatterGatherKernel.cu:"
_CHECKS = ("gather.index", "take_along_dim.indices")


class ChangedIndex(msgspec.Struct, frozen=True):
    """`call` at `place` is the forward; `aliases`: lines that take the same memory by `.data`."""

    argument: str
    call: str
    place: str
    aliases: tuple[str, ...]

    @property
    def words(self) -> str:
        """A clause behind the place."""
        return (
            f"; `{self.argument}` of `{self.call}` passed the same check in the forward pass, "
            "so its values have changed since"
        )

    @property
    def advice(self) -> str:
        """Where to look, and what to change."""
        first = f" Look first at {self.aliases[0]}." if self.aliases else ""
        return (
            f"Do not write into the memory of `{self.argument}` between {self.place} and the backward pass, or pass a "
            f"clone there: `{self.argument}.clone()`. Autograd refuses in-place changes that it counts; those through "
            f"`.data`, other libraries and kernels of the program's own are not counted.{first}"
        )


def changed_index(view: ProcessView, assertion: KernelAssertion | None, culprit: Launch | None) -> ChangedIndex | None:
    """None unless one call of the known forward line gave the index that the only suspect checked."""
    if assertion is None or not assertion.place.startswith(_CHECK):
        return None
    if culprit is None or culprit.python is None or culprit.backward is not None:
        return None
    if not (culprit.node or "").startswith(_NODE) or culprit.operator != _OPERATOR:
        return None
    at = launching_line(view, culprit.python)
    calls = checked_calls(at, _CHECKS, None) if at is not None else []
    if at is None or len(calls) != 1 or len(calls[0].arguments) != 1:
        return None
    argument = calls[0].arguments[0]
    file = short_file(culprit.python.file)
    return ChangedIndex(source(argument), source(calls[0].node), f"{file}:{at.line}", _aliases(at, argument, file))


def _aliases(at: FailingLine, argument: ast.expr, file: str) -> tuple[str, ...]:
    """Lines after the call, or of the only function of that name that it is passed to, that read its `.data`."""
    if not isinstance(argument, ast.Name):
        return ()
    found = [line for line in _data_lines(at.scope, argument.id, file) if line[0] > at.line]
    for call in nodes_of(at.scope):
        if isinstance(call, ast.Call) and call.lineno > at.line:
            found += _in_called(at, call, argument.id, file)
    return tuple(words for _, words in found)


def _in_called(at: FailingLine, call: ast.Call, name: str, file: str) -> list[tuple[int, str]]:
    called = called_name(call)
    functions = [item for item in nodes_of(at.tree) if isinstance(item, _NAMED) and item.name == called]
    places = [n for n, item in enumerate(call.args) if isinstance(item, ast.Name) and item.id == name]
    if len(functions) != 1 or not places:
        return []
    names = [item.arg for item in (*functions[0].args.posonlyargs, *functions[0].args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    return _data_lines(functions[0], names[places[0]], file) if places[0] < len(names) else []


def _data_lines(scope: ast.AST, name: str, file: str) -> list[tuple[int, str]]:
    wanted = f"{name}.data"
    return [
        (item.lineno, f"`{wanted}` at {file}:{item.lineno}, which is the same memory")
        for item in nodes_of(scope)
        if isinstance(item, ast.Attribute) and ast.unparse(item) == wanted
    ]
