"""How a path ends that the program asks for, where the source shows it: `CT_Abdomen/labelsTr`, of any such folder."""

from __future__ import annotations

import ast

from msgspec import structs

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import contradicts
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import spans_body

_JOINS = ("join", "joinpath", "Path")
_ASKS = frozenset({"exists", "isdir", "isfile", "is_dir", "is_file", "lexists"})
_HOPS = 6
_MOST = 3  # parts that are shown


def asked_ending(at: FailingLine, test: ast.expr, spot: Spot) -> str | None:
    """Of `os.path.exists(folder)` and `folder.exists()`: the last parts of the path, as far back as all are known."""
    if not isinstance(test, ast.Call) or called_name(test) not in _ASKS:
        return None
    owner = test.func.value if isinstance(test.func, ast.Attribute) else None
    asked = test.args[0] if test.args else owner
    parts = _parts(at, asked, spot, _HOPS) if asked is not None else []
    known: list[str] = []
    for part in parts[::-1]:
        if part is None or part in ("", ".", ".."):
            break
        known.insert(0, part)
    return "/".join(known[-_MOST:]) if known else None


def _parts(at: FailingLine, node: ast.expr, spot: Spot, hops: int) -> list[str | None]:
    """Those between the slashes; None of what is not known."""
    made = at.slice.made(node, spot, calls=False)
    value, place = made.node, made.spot
    if not hops or not isinstance(value, ast.expr):
        return [None]
    if isinstance(value, ast.Call) and called_name(value) in _JOINS and value.args:
        whole = isinstance(value.func, ast.Attribute) and called_name(value) == "joinpath"
        first = [value.func.value] if whole and isinstance(value.func, ast.Attribute) else []
        return [part for item in (*first, *value.args) for part in _parts(at, item, place, hops - 1)]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return [part for item in (value.left, value.right) for part in _parts(at, item, place, hops - 1)]
    item = _item_of_loop(at, value, place)
    if item is not None:
        return _parts(at, item[0], item[1], hops - 1)
    option = _option(at, value, (node, spot))
    if option is not None:
        return [*option.split("/")]
    text = path_parts(at.slice, value, place)
    return [None if "{" in part else part for part in text] or [None]


def _item_of_loop(at: FailingLine, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot] | None:
    """`os.path.join(root, organ)` of a variable of a loop over `[os.path.join(root, organ) for organ in ORGANS]`."""
    name = variable(node)
    loops = [item for item in loops_of(spot.scope) if isinstance(item, ast.For) and spans_body(item.body, spot.line)]
    loop = next((item for item in loops[::-1] if name is not None and variable(item.target) == name), None)
    if loop is None:
        return None
    over = at.slice.made(loop.iter, structs.replace(spot, line=loop.lineno), calls=False)
    listed = isinstance(over.node, ast.ListComp) and len(over.node.generators) == 1
    return (over.node.elt, over.spot) if listed and isinstance(over.node, ast.ListComp) else None


def _option(at: FailingLine, node: ast.expr, read: tuple[ast.expr, Spot]) -> str | None:
    """The default of an option of argparse that the command line does not name."""
    if not isinstance(node, ast.Call) or called_name(node) != "add_argument":
        return None
    default = keyword_value(node, "default")
    words = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    given = any(_names(word, name) for name in words for word in at.snapshot.argv)
    if given or not isinstance(default, ast.Constant) or not isinstance(default.value, str):
        return None
    recorded = at.value_at(*read)
    return default.value if recorded is None or not contradicts(recorded, default.value) else None


def _names(word: str, option: str) -> bool:
    """Whether a word of the command line may name an option: argparse takes `--data` for `--dataset`."""
    return word.startswith(option) or (word.startswith("--") and option.startswith(word.partition("=")[0]))
