"""The tensors of the running call: those that its native code refers to, and those that the program's line passes.

A kernel that OpenMP's threads run, or that torch.compile made, refers to the memory of its tensors and no longer to the
tensors. The variables of the line, and the arguments of torch's own Python frames above it, still do.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import plain_expression, python_frames, tensor_variable
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor, find_operator
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.lines import names_of_call
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Holder

_ROOT = Pattern(r"\w+")
_PASSED_ON = Pattern(r"(args|kwargs|runtime_args)\[|arg\d+_1$")


def line_tensors(view: ProcessView) -> tuple[OperatorTensor, ...]:
    """Each tensor of the running call once, those of the native code first; the result may be among them."""
    crash, operator = view.crash, find_operator(view)
    if crash is None:
        return ()
    given = [item for item in (operator.tensors if operator is not None else ()) if not item.item.undefined]
    on_line = [*_on_the_line(view, operator)]
    own = [item for item in on_line if item.own]  # other threads may run the same line
    bases = {item.base for item in own or on_line}
    parts = {(item.base, item.elements, item.offset) for item in own or on_line}
    found: dict[tuple[int, int, tuple[int, ...]], OperatorTensor] = {}
    for item in sorted(given, key=lambda item: not item.passed):
        if _is_part(item.item, parts) if item.item.how == "held" else item.item.base in bases or not _is_stale(item):
            found.setdefault((item.item.base, item.item.offset, item.item.sizes), item)
    if operator is None:
        for held in crash.arguments:
            if not held.undefined and (_is_part(held, parts) if held.how == "held" else held.base in bases):
                name = tensor_variable(view, held)
                found.setdefault((held.base, held.offset, held.sizes), OperatorTensor(held, name, None, passed=False))
    return tuple(found.values())


def _is_part(item: Argument, parts: Collection[tuple[int, int, int | None]]) -> bool:
    """Whether a variable's tensor is one of these; another part of the same memory is another variable's."""
    return any(
        (item.base, item.elements, offset) in parts for offset in (item.offset, *([None] if item.offset else []))
    )


def operands_of_line(view: ProcessView) -> list[OperatorTensor] | None:
    """The tensors of the only call or operation of the program's innermost line, as it passes them.

    None unless it passes nothing but variables and constants, and each variable that holds a tensor is seen in the
    native code with all its elements: then nothing else is an operand.
    """
    operator, wanted = find_operator(view), _held_operands(view)
    if operator is None or wanted is None:
        return None
    seen = {(item.item.base, item.item.elements): item for item in reversed(operator.tensors) if item.passed}
    return [seen[key] for key in wanted] if all(key in seen for key in wanted) else None


def are_operands_known(view: ProcessView) -> bool:
    """Whether each tensor that the innermost line passes was found, if only as what a variable of it held."""
    wanted, crash = _held_operands(view), view.crash
    known = {(item.base, item.elements) for item in crash.arguments} if crash is not None else set()
    return wanted is not None and all(key in known for key in wanted)


def _held_operands(view: ProcessView) -> list[tuple[int, int]] | None:
    """Memory and elements of what the line passes; None where it passes more than variables and constants."""
    own, operator = next(iter(python_frames(view)), None), find_operator(view)
    tree = syntax_tree(view.process.snapshot, python_frame(own)) if own is not None else None
    if operator is None or tree is None or own is None or own.line is None or is_library_file(own.file):
        return None
    given = _only_operands(tree, own.line)
    at = (own.file, own.function, own.line)
    held: dict[str, tuple[int, int]] = {}
    for item in view.crash.holders if view.crash is not None else ():
        if item.own and item.frame is not None and (item.frame.file, item.frame.function, item.frame.line) == at:
            held.setdefault(plain_expression(item.expression), (item.base, item.elements))
    names = [name for name in dict.fromkeys(given or ()) if name in held]
    if sum(not held[name][0] for name in names) > 1:
        return None  # which of those without memory is which is not known
    return list(dict.fromkeys(held[name] for name in names)) or None


def _only_operands(tree: ast.Module, line: int) -> list[str] | None:
    """What the only call, or the only `a + b`, of a line is of; None where it is of another expression."""
    nodes = [item for item in nodes_of(tree) if isinstance(item, (ast.Call, ast.BinOp)) and spans(item, line)]
    if len(nodes) != 1:
        return None
    node = nodes[0]
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else passed_values(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        parts.insert(0, node.func.value)  # `x` of `x.div(y)`
    plain = all(isinstance(item, (ast.Name, ast.Attribute, ast.Constant)) for item in parts)
    return [ast.unparse(item) for item in parts] if plain else None


def passes_list(view: ProcessView) -> bool:
    """Whether a call on the program's innermost line passes a list or tuple, written there or held by a variable."""
    own = next((item for item in python_frames(view) if not is_library_file(item.file)), None)
    tree = syntax_tree(view.process.snapshot, python_frame(own)) if own is not None else None
    if tree is None or own is None or own.line is None or view.crash is None:
        return False
    given = [value for call in calls_on(tree, own.line) for value in passed_values(call)]
    if any(isinstance(item, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)) for item in given):
        return True
    names = {ast.unparse(item) for item in given}
    at = (own.file, own.function, own.line)
    return any(
        plain_expression(item.expression).rpartition("[")[0] in names
        for item in view.crash.holders
        if item.frame is not None and (item.frame.file, item.frame.function, item.frame.line) == at
    )


def _is_stale(item: OperatorTensor) -> bool:
    """Whether it is a variable that the operator was not given: a word of it is left on the kernel's own stack."""
    return item.name is not None and not item.passed and item.item.outer_frame is not None


def _on_the_line(view: ProcessView, operator: Operator | None) -> Iterator[Holder]:
    """Variables that the program's innermost line reads, and what torch's frames above it pass on."""
    crash = view.crash
    frames = python_frames(view)
    own = next((item for item in frames if not is_library_file(item.file)), None)
    above = {(item.function, item.line) for item in frames[: frames.index(own)]} if own is not None else set()
    tree = syntax_tree(view.process.snapshot, python_frame(own)) if own is not None else None
    names = set(_names(operator, tree, own.line)) if tree is not None and own is not None and own.line else set()
    for item in crash.holders if crash is not None else ():
        at = item.frame
        if at is None or item.kind not in ("local", "cell"):
            continue
        if (at.function, at.line) in above and _PASSED_ON.match(item.expression):
            yield item
        elif own is not None and (at.file, at.function, at.line) == (own.file, own.function, own.line):
            root, plain = _ROOT.match(item.expression), plain_expression(item.expression)
            if plain in names or (root is not None and root[0] != "self" and root[0] in names):
                yield item


def _names(operator: Operator | None, tree: ast.Module, line: int) -> list[str]:
    """Variables of the line; of its only call with the operator's name those it passes, not those of calls inside."""
    names = names_of_call(tree, line)
    called = operator.name.rpartition("::")[2] if operator is not None else ""
    calls = [item for item in calls_on(tree, line) if (name := called_name(item)) and called.endswith(name)]
    if len(calls) != 1:
        return names
    inner = [item for part in passed_values(calls[0]) for item in nodes_of(part) if isinstance(item, ast.Call)]
    within = {id(item) for call in inner for part in passed_values(call) for item in nodes_of(part)}
    receiver = calls[0].func.value if isinstance(calls[0].func, ast.Attribute) else None
    given = [node for part in (receiver, *passed_values(calls[0])) if part is not None for node in nodes_of(part)]
    own = {ast.unparse(item) for item in given if isinstance(item, ast.expr) and id(item) not in within}
    return [name for name in names if name in own]
