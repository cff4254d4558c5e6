"""A dict that a loop goes through, and the key that is set only below a condition."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.dict_keys import copied_dict, dict_of, makes_dict
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop, deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in
from pytracer.report.job import PythonFrame

_MOST = 3  # dicts
_ADDED = "added"


class FilledKeys(msgspec.Struct, frozen=True):
    """`name`: of the dict. `words`: `` `recall` is set only below `if found:` (line 8) ``, of the only such key.

    `added`: whether it is a dict with several keys, perhaps.

    Of a dict whose keys are those of another one, that one's.
    """

    name: str
    words: str | None
    added: bool = False


def filled_keys(side: Side, loop: Loop, depth: int = 0) -> FilledKeys | None:
    """Of a loop of the innermost function, or of one further out; None where it does not go through a dict."""
    given = dict_of(loop.iter) if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    slice_ = Slice(side.view.process.snapshot, side.way[::-1])
    spot = slice_.spot(depth)
    name = variable(given[0]) if given is not None else None
    if given is None or name is None or spot is None:
        return None
    made = slice_.made(given[0], spot, calls=True)
    levels = [made]
    while (whole := copied_dict(levels[-1].node)) is not None and len(levels) < _MOST:
        levels.append(slice_.made(whole, levels[-1].spot, calls=True))
    made = levels[-1]
    if not makes_dict(made.node):
        return FilledKeys(name, None) if given[1] else None
    found = [(item.spot, *part) for item in levels for part in _conditional(item.spot.tree, item.spot.scope, item.node)]
    if len(found) != 1:
        return FilledKeys(name, None)
    at_spot, key, does, decides = found[0]
    file = at_spot.file
    head = quoted(side.view.process.snapshot, PythonFrame(file=file, line=decides), decides)
    at = line_in(file, decides, side.way[-1].file)
    return FilledKeys(name, f"`{key}` is {does} only below {head} ({at})" if head is not None else None, does == _ADDED)


def _conditional(tree: ast.Module, scope: ast.AST, made: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Keys that the function sets, and dicts that it adds, below an `if`: each with the line of that."""
    names = {
        variable(item.targets[0]) for item in own_nodes(scope) if isinstance(item, ast.Assign) and item.value is made
    }
    for item in own_nodes(scope):
        for target in item.targets if isinstance(item, ast.Assign) else ():
            if not isinstance(target, ast.Subscript) or variable(target.value) not in names:
                continue
            decides = next((test.lineno for test, around in deciding_ifs(tree, target.lineno) if around), None)
            if decides is not None:
                yield _key_words(target.slice), "set", decides
        call = item.value if isinstance(item, ast.Expr) else None
        if not isinstance(call, ast.Call) or called_name(call) != "update" or not isinstance(call.func, ast.Attribute):
            continue
        decides = next((test.lineno for test, around in deciding_ifs(tree, call.lineno) if around), None)
        if variable(call.func.value) in names and len(call.args) == 1 and decides is not None:
            yield source(call.args[0]), _ADDED, decides


def _key_words(key: ast.expr) -> str:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ast.unparse(key)
