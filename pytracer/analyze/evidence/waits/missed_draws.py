"""A loop that draws until something is found, and had found nothing: what it asked for, by the recorded values.

`while image is None: index = random.randint(0, n - 1); image = self.get(f"{index:05d}")` ends unless no index is there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.changes import RANDOM, is_own, names_read
from pytracer.analyze.evidence.syntax.made_texts import made_text
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, outcome
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans
from pytracer.analyze.evidence.syntax.unbounded import (
    LONGEST,
    EndlessLoop,
    Reason,
    body_of,
    is_unbounded,
    leaves,
    short_text,
)
from pytracer.analyze.evidence.waits.made_tensors import made_tensors
from pytracer.analyze.evidence.waits.running_loops import idle_loop
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_WRITES = frozenset({"put", "hset", "mset", "create_dataset", "setdefault"})
_INSERTS = ("INSERT ", "REPLACE ")


class MissedDraws(msgspec.Struct, frozen=True):
    """`names`: that are still None. `asked`: the call that gave the last of them, for `key`; `written`: the keys."""

    loop: EndlessLoop
    names: tuple[str, ...]
    draw: ast.Assign
    drawn: str | None
    asked: ast.Call
    key: str | None
    now: bool
    """Whether it was at that call: what is None is of a draw before."""
    first: ast.Call | None
    written: tuple[int, str] | None

    @property
    def reason(self) -> Reason:
        """Why it went on."""
        are = f"{list_words([f'`{name}`' for name in self.names])} {'are' if len(self.names) > 1 else 'is'} still None"
        name = ast.unparse(self.draw.targets[0])
        value = f" (`{name}` = {self.drawn})" if self.drawn is not None else ""
        first = f", nor did line {self.first.lineno} before the loop" if self.first is not None else ""
        key = f", for `{self.key}`" if self.key is not None and not self.now else ""
        now = f"; it now asked for `{self.key}`" if self.key is not None and self.now else ""
        text = short_text(self.asked.func)
        return Reason(
            f"{are}: `{text}()` (line {self.asked.lineno}) had found nothing for what line {self.draw.lineno} draws at "
            f"random{value}{key}{first}{now}; where it finds nothing for any, the loop draws for ever",
            f"{self._look} Raise an error where nothing is found for the first one, or bound the number of draws "
            f"(`for _ in range(100):`, with an `else:`).",
            idle=True,
        )

    @property
    def _look(self) -> str:
        what = f"`{self.key}`" if self.key is not None else f"what line {self.asked.lineno} asks for"
        if self.written is None:
            return f"Compare {what} with what is there: print both."
        line, text = self.written
        return f"Compare {what} with the keys that are there, which line {line} writes as `{text}`: print both."


def missed_draws(view: ProcessView, frame: PythonFrame, value_of: ValueOf) -> MissedDraws | None:
    """Of the innermost `while` around a frame's line. None where the process did a step meanwhile, or may have."""
    around = idle_loop(view, frame)
    if around is None or frame.line is None:
        return None
    scope, loop = around
    if not isinstance(loop, ast.While) or is_unbounded(loop) or leaves(loop) or not outcome(loop.test, value_of):
        return None
    names = [
        name for name in _nones(loop.test) if is_own(scope, name) and value_of(ast.Name(name, ast.Load())) == "None"
    ]
    sets = {name: _set_in(loop, name) for name in names}
    if not names or any(len(items) != 1 or not isinstance(items[0].value, ast.Call) for items in sets.values()):
        return None
    draws = [item for item in body_of(loop) if isinstance(item, ast.Assign) and _is_drawn(item.value)]
    if len(draws) != 1 or not isinstance(draws[0].targets[0], ast.Name):
        return None
    drawn = draws[0].targets[0]
    calls = [items[0].value for items in sets.values()]
    asking = [item for item in calls if isinstance(item, ast.Call) and drawn.id in names_read(item)]
    done = [item for item in asking if draws[0].lineno < item.lineno < frame.line]
    missed = done or _drew(draws[0], frame.line, value_of) or all(_bound_before(scope, loop, name) for name in names)
    if len(asking) != len(calls) or not missed:
        return None  # the first draw may only take long
    now = next((item for item in asking if spans(item, frame.line) and draws[0].lineno < item.lineno), None)
    asked = done[-1] if done else now or asking[0]
    key = next((made for item in passed_values(asked) if (made := made_text(item, value_of)) is not None), None)
    return MissedDraws(
        loop,
        tuple(names),
        draws[0],
        value_of(drawn) if done else None,
        asked,
        key if done or now is not None else None,
        not done,
        _before(scope, loop, names),
        _written(view, frame, asked),
    )


def is_first_item(view: ProcessView, caller: PythonFrame) -> bool:
    """Whether the `for` at whose head the caller was has had no item: no tensor is recorded of a line of its body."""
    tree, line = syntax_tree(view.process.snapshot, caller), caller.line or 0
    found = [item for item in nodes_of(tree) if isinstance(item, ast.For) and spans(item.iter, line)] if tree else []
    return len(found) == 1 and not any(made_tensors(view, caller, item) for item in found[0].body)


def _drew(draw: ast.Assign, line: int, value_of: ValueOf) -> bool:
    """Whether it draws anew: the variable has the value of a pass before."""
    return line <= (draw.end_lineno or draw.lineno) and value_of(draw.targets[0]) is not None


def _nones(test: ast.expr) -> Iterator[str]:
    """`image` of `image is None`, of `not image`, and of such ones that `or` and `and` join."""
    for item in nodes_of(test):
        if isinstance(item, ast.Compare) and isinstance(item.ops[0], ast.Is) and isinstance(item.left, ast.Name):
            yield item.left.id
        elif isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.Not) and isinstance(item.operand, ast.Name):
            yield item.operand.id


def _set_in(loop: EndlessLoop, name: str) -> list[ast.Assign]:
    return [
        item
        for item in body_of(loop)
        if isinstance(item, ast.Assign) and [ast.unparse(one) for one in item.targets] == [name]
    ]


def _is_drawn(value: ast.AST) -> bool:
    return any(isinstance(item, ast.Call) and RANDOM.search(ast.unparse(item.func)) for item in nodes_of(value))


def _before(scope: Scope, loop: EndlessLoop, names: Sequence[str]) -> ast.Call | None:
    """The call that had given the first of them before the loop: it is None as well, or the loop was not begun."""
    if len(names) != 1 or not isinstance(loop, ast.While) or not isinstance(loop.test, (ast.Compare, ast.UnaryOp)):
        return None
    return _bound_before(scope, loop, names[0])


def _bound_before(scope: Scope, loop: EndlessLoop, name: str) -> ast.Call | None:
    found = [
        item.value
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign) and item.lineno < loop.lineno
        if [ast.unparse(one) for one in item.targets] == [name]
    ]
    return found[-1] if found and isinstance(found[-1], ast.Call) else None


def _written(view: ProcessView, frame: PythonFrame, asked: ast.Call) -> tuple[int, str] | None:
    """The only line of the file that writes keys which are no constants, and how it makes them."""
    tree = program_files(view.process.snapshot, [frame]).get(frame.file or "")
    keys = []
    for item in nodes_of(tree) if tree is not None else ():
        key = _key_of(item) if isinstance(item, ast.Call) and not spans(asked, item.lineno) else None
        if key is not None and not isinstance(key, ast.Constant):
            keys.append((key.lineno, shortened(ast.unparse(key), LONGEST)))
    return keys[0] if len(keys) == 1 else None


def _key_of(call: ast.Call) -> ast.expr | None:
    """What is written for, in `txn.put(key, value)` and `execute("INSERT INTO store VALUES (?, ?)", (key, value))`."""
    name = called_name(call)
    if name in _WRITES and len(call.args) > 1:
        return call.args[0]
    if name not in ("execute", "executemany") or len(call.args) < 2 or not isinstance(call.args[0], ast.Constant):
        return None
    values = call.args[1]
    inserts = str(call.args[0].value).lstrip().upper().startswith(_INSERTS)
    return values.elts[0] if inserts and isinstance(values, (ast.Tuple, ast.List)) and len(values.elts) > 1 else None
