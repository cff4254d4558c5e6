"""What cannot be pickled for another process or a file: what made it, and the way to it from what is passed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.looked_up_names import not_looked_up
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named, function_named, own_nodes, scope_of

# CPython 3.12: 'TextIOWrapper' instances; 3.13: get; 3.14: <function main.<locals>.load at 0x7f>.
_PICKLED = Pattern(
    r"cannot pickle '([\w.]+)' (?:object|instances)"
    r"|[Cc]an't (?:pickle|get) local object (?:<\w+ )?'?([\w.<>]+)"
)
# What makes an object of a type that cannot be pickled.
_MADE_BY = {
    "_thread.lock": r"\bLock\(|\bQueue\(|\bEvent\(|\bCondition\(",
    "_thread.RLock": r"\bRLock\(|\bCondition\(",
    "TextIOWrapper": r"\bopen\(",
    "BufferedReader": r"\bopen\(",
    "BufferedWriter": r"\bopen\(",
    "generator": r"\byield\b|for .* in .*\)$",
    "socket": r"\bsocket\(",
    "sqlite3.Connection": r"\bconnect\(",
    "module": r"= *\w+$",
}
_OF_THREAD = r"|\bThread\("  # it has an Event
_SHARED = Pattern(r"\b(?:mp|multiprocessing|ctx|context|manager)\.\w+\(")  # made to be passed on
_STATE = frozenset({"__getstate__", "__reduce__", "__reduce_ex__"})
_MOST = 2


class _Way(msgspec.Struct, frozen=True):
    """`args.tb`, an instance of a class of the program, and the line that made it."""

    name: str
    made: str
    owner: ast.ClassDef


def refused_kind(message: str) -> tuple[str | None, str | None]:
    """The type of what cannot be pickled, or the qualified name of a local function or class."""
    found = _PICKLED.search(message)
    return (found[1], found[2]) if found is not None else (None, None)


def makers(tree: ast.AST, kind: str) -> list[ast.Assign | ast.AnnAssign]:
    """The assignments that make an object of a type which cannot be pickled, and keep it."""
    made = _MADE_BY.get(kind.removeprefix("_io."))
    return list(_assignments(tree, made)) if made is not None else []


def _assignments(tree: ast.AST, made: str) -> Iterator[ast.Assign | ast.AnnAssign]:
    for item in nodes_of(tree):
        text = ast.unparse(item) if isinstance(item, (ast.Assign, ast.AnnAssign)) else ""
        if isinstance(item, (ast.Assign, ast.AnnAssign)) and re.search(made, text) and not _SHARED.search(text):
            yield item


def defined_inside(tree: ast.Module, name: str) -> str:
    """The line of `main.<locals>.<lambda>`, where it is the only one in main()."""
    node = _defined(tree, name)
    return f"line {node.lineno}" if node is not None else ""


def _defined(tree: ast.Module, name: str) -> ast.Lambda | ast.FunctionDef | ast.ClassDef | None:
    outer, _, inner = name.rpartition(".<locals>.")
    around = _function(tree, outer)
    kinds = ast.Lambda if inner == "<lambda>" else (ast.FunctionDef, ast.ClassDef)
    found = [item for item in nodes_of(around) if isinstance(item, kinds) and item is not around] if around else []
    found = [item for item in found if inner in ("<lambda>", getattr(item, "name", ""))]
    return found[0] if len(found) == 1 else None


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """By its qualified name: many classes have an `__init__`."""
    owner, _, last = name.rpartition(".<locals>.")[2].rpartition(".")
    held = class_named(tree, owner) if owner else None
    if held is None:
        return function_named(tree, last)
    methods = [item for item in held.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return next((item for item in methods if item.name == last), None)


def _held_as(at: FailingLine, name: str) -> tuple[str, ast.ClassDef] | None:
    """`self.loss`, and the class, where only one attribute is set to a lambda or a function of a method."""
    node = _defined(at.tree, name)
    owner = class_around(at.tree, scope_of(at.tree, node.lineno)) if node is not None else None
    if node is None or owner is None or isinstance(node, ast.ClassDef):
        return None
    sets = [item for item in nodes_of(owner) if isinstance(item, ast.Assign) and len(item.targets) == 1]
    inner = getattr(node, "name", None)
    own = [item for item in sets if item.value is node or (inner is not None and variable(item.value) == inner)]
    names = {each for item in own if (each := variable(item.targets[0])) is not None and each.startswith("self.")}
    return (names.pop(), owner) if len(names) == 1 else None


def _plain_factory(tree: ast.Module, name: str) -> str | None:
    """`list` of `defaultdict(lambda: [])`, whose lambda has no need to be one."""
    node = _defined(tree, name)
    if not isinstance(node, ast.Lambda) or node.args.args:
        return None
    body = node.body
    kinds = {ast.List: "list", ast.Dict: "dict", ast.Tuple: "tuple"}
    kind = kinds.get(type(body)) if not (getattr(body, "elts", None) or getattr(body, "keys", None)) else None
    if isinstance(body, ast.Constant) and body.value in (0, 0.0, False, ""):
        kind = type(body.value).__name__
    if isinstance(body, ast.Call) and not (body.args or body.keywords) and isinstance(body.func, ast.Name):
        kind = body.func.id  # `lambda: set()`
    given = (item for item in nodes_of(tree) if isinstance(item, ast.Call) and node in item.args)
    return kind if any(called_name(item) == "defaultdict" for item in given) else None


def not_picklable(at: FailingLine) -> str | None:
    """By what is made of that type in the program."""
    found = _PICKLED.search(at.message)
    if found is None:
        looked_up = not_looked_up(at)
        return f"{capital(looked_up)}." if looked_up is not None else None
    if found[2] is not None:
        what = "A lambda" if "<lambda>" in found[2] else "A function or class inside of a function"
        place, plain = defined_inside(at.tree, found[2]), _plain_factory(at.tree, found[2])
        if plain is not None:
            return (
                f"{what} ({place}) cannot be pickled, and line {at.line} sends it to another process or file: write "
                f"`defaultdict({plain})` there, which can."
            )
        held = _held_as(at, found[2])
        if held is not None:
            attribute, owner = held
            inner = "a lambda" if "<lambda>" in found[2] else "a function inside of a function"
            given = next((f" with `{source(item)}`" for item in _passed(at) if _class_of(at, item) is owner), "")
            return (
                f"`{attribute}` of {owner.name} is {inner} ({place}), which cannot be pickled, and "
                f"line {at.line} sends it to another process or file{given}: define it at the top level of the module "
                f"(functools.partial for its arguments), or make the {owner.name} in the process that uses it."
            )
        return (
            f"{what} ({place or found[2]}) cannot be pickled, and line {at.line} sends it to another process or file: "
            "define it at the top level of the module (functools.partial for its arguments)."
        )
    made = _MADE_BY.get(found[1].removeprefix("_io."))
    inside = f"{made}{_OF_THREAD if 'lock' in found[1] else ''}" if made is not None else None
    way = next(_ways(at, inside), None) if inside is not None else None
    if way is not None and inside is not None:
        return _by_way(at, way, found[1], _made_in(way.owner, inside))
    lines = _made_in(at.tree, made) if made is not None else []
    if not lines or len(lines) > _MOST:
        return None
    saves = "save" in source(at.node) if at.node is not None else False
    if at.node is not None and "deepcopy" in source(at.node):
        return (
            f"What line {at.line} copies holds a {found[1]}, made at {' or '.join(lines)}: keep that object outside of "
            "what is copied, or leave the attribute out in __getstate__()."
        )
    instead = (
        "Save state_dict() and plain values instead of the object" if saves else "Make it in the process that uses it"
    )
    return (
        f"What line {at.line} pickles holds a {found[1]}, made at {' or '.join(lines)}. {instead}, or leave that "
        "attribute out in __getstate__."
    )


def _by_way(at: FailingLine, way: _Way, kind: str, lines: list[str]) -> str:
    copies = at.node is not None and "deepcopy" in ast.unparse(at.node)
    make = f"Make {way.owner.name} in the process that uses it, or this attribute at its first use; or leave"
    return (
        f"`{way.name}`{way.made}, which line {at.line} {'copies' if copies else 'pickles'}, holds a {kind}: "
        f"{' or '.join(lines[:_MOST])}. {'Leave' if copies else make} it out in __getstate__()."
    )


def _made_in(tree: ast.AST, made: str) -> list[str]:
    """The lines that make one; nothing of a class that says itself what is pickled of it."""
    if isinstance(tree, ast.ClassDef) and any(getattr(item, "name", "") in _STATE for item in tree.body):
        return []
    return [f"line {item.lineno} (`{source(item)}`)" for item in _assignments(tree, made)]


def _ways(at: FailingLine, made: str) -> Iterator[_Way]:
    """From the arguments that are pickled to an object of a class whose methods make such a thing."""
    for passed in _passed(at):
        owner = _class_of(at, passed)
        if owner is not None and _made_in(owner, made):
            yield _Way(source(passed), _line_of(at, passed), owner)
        elif owner is not None:
            yield from _held_by(at, source(passed), owner, made)
        for line, text, inner in _attributes(at, passed):
            if _made_in(inner, made):
                yield _Way(text, f" ({at.here(line)})", inner)


def _passed(at: FailingLine) -> Iterator[ast.expr]:
    """By the call itself; of `p.start()` and of a loop over a loader, by the call that made the object."""
    call = at.only(ast.Call)
    if call is None or not (call.args or call.keywords):
        owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
        node = at.node.iter if isinstance(at.node, ast.For) else at.node
        if call is None and isinstance(node, ast.expr):
            owner = node
        made = at.made(owner) if owner is not None else None
        call = made.node if made is not None and isinstance(made.node, ast.Call) and made.spot.depth == 0 else None
    for item in passed_values(call) if call is not None else []:
        yield from _flat(item)


def _flat(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for item in node.elts:
            yield from _flat(item)
    elif isinstance(node, ast.Dict):
        for item in node.values:
            yield from _flat(item)
    elif isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Attribute):  # a value, or a method, which goes with its object
        yield node
        yield from _flat(node.value)


def _class_of(at: FailingLine, node: ast.expr) -> ast.ClassDef | None:
    """Of an object that the program makes of a class of this file."""
    if isinstance(node, ast.Name) and node.id == "self":
        return class_around(at.tree, at.scope)
    made = at.made(node, calls=False)
    call = made.node if made is not None else None
    return class_named(at.tree, called_name(call) or "") if isinstance(call, ast.Call) else None


def _line_of(at: FailingLine, node: ast.expr) -> str:
    made = at.made(node, calls=False)
    return f" ({at.place(made.spot, made.line)})" if made is not None and isinstance(made.node, ast.Call) else ""


def _held_by(at: FailingLine, name: str, owner: ast.ClassDef, made: str) -> Iterator[_Way]:
    """`self.log = Log()` in a method of what is passed."""
    for item in nodes_of(owner):
        held = _constructed(at, item)
        if held is not None and held[0].startswith("self.") and _made_in(held[1], made):
            yield _Way(f"{name}.{held[0].removeprefix('self.')}", f" (line {item.lineno})", held[1])  # type: ignore[attr-defined]


def _attributes(at: FailingLine, passed: ast.expr) -> Iterator[tuple[int, str, ast.ClassDef]]:
    """`args.tb = Writer()` above the line, of what is passed."""
    for item in own_nodes(at.scope):
        held = _constructed(at, item)
        if held is not None and held[0].rpartition(".")[0] == source(passed) and item.lineno < at.line:  # type: ignore[attr-defined]
            yield item.lineno, held[0], held[1]  # type: ignore[attr-defined]


def _constructed(at: FailingLine, item: ast.AST) -> tuple[str, ast.ClassDef] | None:
    """The attribute that an assignment gives an object of a class of this file."""
    if not isinstance(item, ast.Assign) or not isinstance(item.value, ast.Call) or len(item.targets) != 1:
        return None
    found = class_named(at.tree, called_name(item.value) or "")
    target = item.targets[0]
    return (ast.unparse(target), found) if found is not None and isinstance(target, ast.Attribute) else None
