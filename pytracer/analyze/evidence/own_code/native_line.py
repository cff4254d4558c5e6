"""What the program's line passes to the native code that failed: its variables, their origins, and a number of its own.

A native function that trusts its arguments fails far from the mistake. The program's line names the arguments; a large
number that the program writes down and that a register held at the fault is the first suspect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened, uncapital
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.exceptions.name_origins import NameOrigin, follow
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.operators.in_backward import backward
from pytracer.analyze.evidence.operators.operator import find_operator, shape_words
from pytracer.analyze.evidence.own_code.native_bounds import native_bounds
from pytracer.analyze.evidence.own_code.passed import names_passed
from pytracer.analyze.evidence.own_code.passed_memory import memory_advice
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_GUARD = "`pytracer run --guard`"
_MOST_NAMES = 3
_MOST_FILES = 3
_QUOTED = 44
_DIVIDES = Pattern(r"//|%|\blen\(|\bint\(")
_LEAST = 100_000  # smaller numbers are in registers by chance
_LEAST_ROUND = 1 << 31  # powers of two are, too
_LARGEST_SHIFT = 64
_SHOWS = ("print", "pprint", "repr", "debug", "info", "warning", "error")  # print() and the methods of a logger


def with_native_line(view: ProcessView, advice: str) -> str:
    """An advice with a sentence before and behind it; what it names already is left out."""
    frames = program_frames(view)
    memory = memory_advice(view) if frames else None
    if memory is not None:
        return f"{memory} If it is not that: {uncapital(advice)}"
    bounds = native_bounds(view)
    if bounds is not None and bounds.place not in advice:
        first, guard, rest = advice.partition(_GUARD)
        advice = " ".join(filter(None, (first.strip(), bounds.words, f"{guard}{rest}".strip())))
    if not frames:
        return advice
    number = _number_in_register(view, frames) if "`" not in advice else None  # a culprit is named
    told = (
        backward(view) is not None or f"which line {frames[0].line} passes" in advice
    )  # with the values; backward works on what the forward saved
    passed = None if told else _passed(view, frames, advice)
    return " ".join(filter(None, (number, advice, passed)))


def _is_itself(origin: PythonFrame, frame: PythonFrame, shown: bool) -> bool:
    """Whether a value comes from the line that passes it: also from that of a comprehension around it."""
    return (origin.file, origin.line) == (frame.file, frame.line) and (origin.function != frame.function or not shown)


def _hides(origin: NameOrigin, callers: list[PythonFrame]) -> bool:
    """Whether it is a caller's line that does not show the argument: `step(**batch)`, `loss.backward()`."""
    if origin.frame not in callers:
        return False
    try:
        calls = [item for item in nodes_of(ast.parse(origin.text)) if isinstance(item, ast.Call)]
    except (SyntaxError, ValueError):
        return False
    given = (value for item in calls for value in (*item.args, *(word for word in item.keywords if word.arg)))
    return bool(calls) and all(isinstance(value, ast.Starred) for value in given)


def _only_shown(tree: ast.Module, line: int) -> set[str]:
    """Variables of a line that only print(), or a logger, is given around the call that ran."""
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and _is_on(item, line)]
    shows = [item for item in calls if called_name(item) in _SHOWS]
    used = {name for item in calls if item not in shows for name in _in(item)}
    return {name for item in shows for name in _in(item)} - used if used else set()


def _in(node: ast.AST) -> Iterator[str]:
    return (name for item in nodes_of(node) if (name := variable(item)) is not None)


def _is_on(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _number_in_register(view: ProcessView, frames: list[PythonFrame]) -> str | None:
    """`` 500000000 of line 7 (`state["dimension"] = 500000000`) was in a register ... ``"""
    if view.crash is None:
        return None
    held = {signed(value) for name, value in view.crash.registers.items() if name not in STATE_REGISTERS}
    files = list({frame.file: frame for frame in frames}.values())[:_MOST_FILES]
    found: dict[int, PythonFrame] = {}
    for frame in files:
        tree = syntax_tree(view.process.snapshot, frame)
        for line, value in _numbers(tree) if tree is not None else ():
            if value in held:
                found.setdefault(value, PythonFrame(function=None, file=frame.file, line=line))
    if len(found) != 1:
        return None
    value, at = next(iter(found.items()))
    text = line_text(view.process.snapshot, at) or ""
    return f"{value}, a number of line {at.line} (`{shortened(text, _QUOTED)}`), was in a register: check it first."


def _numbers(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Large whole numbers that the program writes, with `10 ** 9` and `1 << 40`."""
    for node in nodes_of(tree):
        value = _whole(node) if isinstance(node, (ast.Constant, ast.BinOp, ast.UnaryOp)) else None
        if value is None or abs(value) < _LEAST or not isinstance(node, ast.expr):
            continue
        if abs(value) >= _LEAST_ROUND or (value & (value - 1) and value & (value + 1)):
            yield node.lineno, value


def _whole(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _whole(node.operand)
        return -value if value is not None else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _whole(node.left), _whole(node.right)
    if left is None or right is None or not (abs(left) < 1 << _LARGEST_SHIFT and abs(right) < 1 << _LARGEST_SHIFT):
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if not 0 <= right < _LARGEST_SHIFT:
        return None
    return left**right if isinstance(node.op, ast.Pow) else left << right if isinstance(node.op, ast.LShift) else None


def _passed(view: ProcessView, frames: list[PythonFrame], advice: str) -> str | None:
    """`` Line 9 passes `scores` [2, 3] (line 4: `...`) and `count` (line 5: `...`). ``"""
    snapshot, frame = view.process.snapshot, frames[0]
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    operator = find_operator(view)
    shapes = {item.name: shape_words(item.item) for item in (operator.tensors if operator is not None else ())}
    words: list[tuple[str, str, str, str]] = []  # with its shape, where it was made; its name and text
    names = names_of_line(tree, frame.line)
    if any(f"`{name}`" in advice for name in names):
        return None  # the culprit is named
    given = names_passed(view, tree, frame.line)
    names = names if given is None else [name for name in names if name in given]
    shown = _only_shown(tree, frame.line)
    for name in sorted(names, key=lambda name: name in shapes):  # tensors are checked more
        found = follow(snapshot, frames, name, None) if name not in shown else None
        if found is None or _hides(found, frames[1:]) or _is_itself(found.frame, frame, name in shapes):
            continue
        shape = f" {shapes[name]}" if name in shapes else ""
        origin = f"line {found.frame.line}: `{shortened(found.text, _QUOTED)}`"
        words.append((f"`{name}`{shape}", origin, name, found.text))
    if "division" in advice:
        of_division = [item for item in words if _DIVIDES.search(_given(view, frames, item[2]) or item[3])]
        words = of_division or words
    if not 0 < len(words) <= _MOST_NAMES:
        return None
    origins = dict.fromkeys(origin for _, origin, *_ in words)
    listed = [f"{list_words([name for name, at, *_ in words if at == item])} ({item})" for item in origins]
    return f"Line {frame.line} passes {list_words(listed)}."


def _given(view: ProcessView, frames: list[PythonFrame], name: str) -> str | None:
    """What a caller passes for a parameter: its line may have more than that."""
    search = Slice(view.process.snapshot, frames)
    spot = search.spot(0)
    given = search.argument(name, spot) if spot is not None and is_parameter(spot.scope, name) else None
    return ast.unparse(given[0]) if given is not None else None
