"""The integer division of a function that torch.compile compiled: what it divides by, and where that was made.

Eager code raises ZeroDivisionError. Some divisions that inductor writes in C++ do not check (`torch.div(...,
rounding_mode="trunc")`), and the kernel knows nothing of the line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.name_origins import follow
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.compiled import CompiledCall, compiled_call
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import constant_number
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import function_headed, own_nodes
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument
from pytracer.report.job import PythonFrame

_ALWAYS = frozenset({"floor_divide", "floor_divide_", "remainder", "remainder_", "fmod", "fmod_"})
_ROUNDED = frozenset({"div", "div_", "divide", "divide_"})
_QUOTED = 80


class CompiledDivisor(msgspec.Struct, frozen=True):
    """`text`: the division, at `line`; `divisor` as it is written. `holds`: what it was recorded with: `0..1248`."""

    line: LineWords
    text: str
    divisor: str
    holds: str | None
    made: LineWords | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        has = f"`{self.divisor}` holds {self.holds}" if self.holds is not None else f"`{self.divisor}` has a 0"
        return f"{self.line} (`{self.text}`) has its only integer division: {has}"

    @property
    def advice(self) -> str:
        """What keeps the divisor from being 0."""
        made = f", which {self.made} makes," if self.made is not None else ""
        return (
            f"Keep `{self.divisor}`{made} from being 0, such as by `.clamp(min=1)`, or divide where it is not "
            "(torch.where). Without torch.compile (TORCH_COMPILE_DISABLE=1) that line raises ZeroDivisionError."
        )


def compiled_divisor(view: ProcessView) -> CompiledDivisor | None:
    """None where no compiled function ran, where it has several divisions, or where the divisor was no 0."""
    call = compiled_call(view)
    tree = syntax_tree(view.process.snapshot, call.function) if call is not None else None
    function = function_headed(tree, call.function.line) if call is not None and tree and call.function.line else None
    if call is None or tree is None or function is None:
        return None
    found = [(node, divisor) for node, divisor in _divisions(function) if constant_number(divisor, tree) in (None, 0)]
    if len(found) != 1:
        return None
    ((node, divisor),) = found
    tensor = _recorded(view, divisor)
    if tensor is not None and not _may_be_zero(tensor):
        return None
    return CompiledDivisor(
        place_of(view, call.function.file, node.lineno),
        shortened(ast.unparse(node), _QUOTED),
        ast.unparse(divisor),
        f"{tensor.minimum}..{tensor.maximum}" if tensor is not None else None,
        _made(view, call, divisor, node.lineno),
    )


def _divisions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in own_nodes(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            yield node, node.right
        elif isinstance(node, ast.Call):
            name = called_name(node)
            rounded = name in _ROUNDED and keyword_value(node, "rounding_mode") is not None
            divisor = keyword_value(node, "other") or (node.args[-1] if node.args else None)
            if (name in _ALWAYS or rounded) and divisor is not None:
                yield node, divisor


def _recorded(view: ProcessView, divisor: ast.expr) -> Argument | None:
    """The whole numbers of a buffer or parameter that is called like the attribute."""
    name = (variable(divisor) or "").rpartition(".")[2]
    crash = view.crash
    found = []
    for item in crash.arguments if crash is not None and name else ():
        storage = view.space.live_around(item.base) if item.base and item.minimum is not None else None
        named = view.space.uses.named.of_storage(storage, item.base)[0] if storage is not None else ()
        if any(tensor.name.rpartition(".")[2] == name for tensor in named):
            found.append(item)
    return found[0] if len({item.base for item in found}) == 1 else None


def _may_be_zero(tensor: Argument) -> bool:
    return tensor.minimum is not None and tensor.maximum is not None and tensor.minimum <= 0 <= tensor.maximum


def _made(view: ProcessView, call: CompiledCall, divisor: ast.expr, line: int) -> LineWords | None:
    name = variable(divisor)
    inside = PythonFrame(function=call.function.function, file=call.function.file, line=line)
    found = follow(view.process.snapshot, [inside], name, None) if name is not None else None
    if found is None:
        return None
    return place_of(view, found.frame.file, found.frame.line).quoted(shortened(found.text, _QUOTED))
