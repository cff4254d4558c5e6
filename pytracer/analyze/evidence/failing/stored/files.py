"""A file that is not there: which option, constant or number of the program its path was made of."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_PATH = Pattern(r"\[Errno 2\] No such file or directory: '([^']+)'")
_SHORTEST = 3
_MOST = 24


def missing_file(at: FailingLine) -> str | None:
    """By the parts of the path that the line asks for."""
    found, call = _PATH.search(at.message), at.only(ast.Call)
    spot = at.slice.spot(0)
    if at.kind != "FileNotFoundError" or found is None or call is None or not call.args or spot is None:
        return None
    path, first = found[1], at.made(call.args[0])
    if path.startswith("~"):
        return (
            f"`{path}` begins with '~', which only a shell replaces by the home folder: pass the path through "
            f"os.path.expanduser() before line {at.line}."
        )
    parts = _parts(at, call.args[0], spot)
    options = [
        (part, text)
        for part, text in parts
        if called_name_of(part) == "add_argument" and path.startswith(text) and not _is_given(at, part)
        if text.endswith("/") or path[len(text) :][:1] in ("", "/", "_", "-", ".")
    ]
    texts = [(part, text) for part, text in parts if isinstance(part.node, ast.Constant) and path.startswith(text)]
    made = f" ({at.shown(first)})" if first is not None and isinstance(first.node, (ast.Call, ast.BinOp)) else ""
    dropped = _dropped(at, first.node if first is not None else call.args[0], path)
    if dropped is not None:
        return f"{dropped}{made}: take the '/' away there."
    if len(options) == 1:
        part, text = options[0]
        option = next((source(item).strip("'\"") for item in getattr(part.node, "args", ())), "the option")
        return (
            f"The path begins with '{text}', the default of {option} ({at.place(part.spot, part.line)}){made}. Give "
            f"{option} the folder that this machine has, or check whether that one is mounted."
        )
    if len(texts) == 1 and len(texts[0][1]) >= _SHORTEST:
        part, text = texts[0]
        about = (
            "is a constant"
            if text.startswith("/")
            else "is looked for in the current folder"
            if any("chdir(" in ast.unparse(tree) for tree in at.files.values())
            else "is looked for in the folder in which the job was started"
        )
        where, rest = at.place(part.spot, part.line), path[len(text) :].strip("/")
        whole = not rest or any(item[1].strip("/") == rest for item in parts)
        begins = f"The path begins with '{text}' ({where}), which {about}{made if part.line != at.line else ''}"
        if whole:
            return f"{begins}: correct it there, or make the file first."
        return f"{begins}, and goes on with '{rest}': correct the part that is not there, or make the file first."
    numbers = _numbers(at, first.node if first is not None else call.args[0], first.spot if first is not None else spot)
    if not numbers:
        return None
    name, value = numbers[0]
    text = made or f" (line {at.line})"
    ranks = name in ("rank", "local_rank", "self.rank", "world_size")
    why = "it was written by fewer ranks, or not yet" if ranks else "that many were not written, or they count from 1"
    like = at.values.get("file like it")
    there = f" (but '{like}')" if like is not None else ""
    return f"The path is made with `{name}` = {value}{text}, and there is no such file{there}: {why}. List its folder."


def _dropped(at: FailingLine, node: ast.AST, path: str) -> str | None:
    """`os.path.join(root, "/images/a.png")`."""
    if not isinstance(node, ast.Call) or called_name(node) != "join" or len(node.args) < 2:
        return None
    texts = [(n, str(item.value)) for n, item in enumerate(node.args) if n and isinstance(item, ast.Constant)]
    last = [(n, text) for n, text in texts if text.startswith("/")]
    if len(last) != 1 or not path.startswith(last[0][1]):
        return None
    place, text = last[0]
    before = " and ".join(f"`{source(item)}`" for item in node.args[:place])
    return f"join() drops {before}, as '{text}' begins with '/' and so from the root of the disk"


def _is_given(at: FailingLine, option: Made) -> bool:
    """Whether the command line has it, or parse_args() is given other words."""
    flags = [item.value for item in getattr(option.node, "args", ()) if isinstance(item, ast.Constant)]
    words = {word.partition("=")[0] for word in at.snapshot.argv}
    parses = (item for item in nodes_of(option.spot.tree) if isinstance(item, ast.Call))
    calls = [item for item in parses if called_name(item) in ("parse_args", "parse_known_args")]
    own = any(item.args and not is_empty_container(item.args[0]) for item in calls)
    return own or any(flag in words for flag in flags)


def called_name_of(part: Made) -> str | None:
    """Of a call."""
    return called_name(part.node) if isinstance(part.node, ast.Call) else None


def _parts(at: FailingLine, node: ast.AST, spot: Spot) -> list[tuple[Made, str]]:
    """Texts that it was joined from."""
    found: list[tuple[Made, str]] = []
    waiting, seen = [(node, spot)], 0
    while waiting and seen < _MOST:
        item, where = waiting.pop(0)
        seen += 1
        made = at.slice.made(item, where, calls=True)
        last = made.node
        if isinstance(last, ast.Constant) and isinstance(last.value, str):
            found.append((made, last.value))
        elif isinstance(last, ast.JoinedStr):
            waiting += [
                (part.value if isinstance(part, ast.FormattedValue) else part, made.spot) for part in last.values
            ]
        elif isinstance(last, ast.BinOp):
            waiting += [(last.left, made.spot), (last.right, made.spot)]
        elif isinstance(last, ast.Call) and called_name(last) == "add_argument":
            default = keyword_value(last, "default")
            if isinstance(default, ast.Constant) and isinstance(default.value, str):
                found.append((made, default.value))
        elif isinstance(last, ast.Call) and called_name(last) in ("join", "Path", "joinpath", "expanduser", "abspath"):
            waiting += [(part, made.spot) for part in last.args]
    return found


def _numbers(at: FailingLine, node: ast.AST, spot: Spot) -> list[tuple[str, str]]:
    """Variables in its text that were numbers."""
    names = [
        name
        for item in nodes_of(node)
        for value in _formatted(item)
        for part in nodes_of(value)
        if (name := variable(part)) is not None
    ]
    told = ((name, at.value_at(ast.parse(name, mode="eval").body, spot)) for name in names)
    return [(name, value) for name, value in told if value is not None and re.fullmatch(r"-?\d+", value)]


def _formatted(node: ast.AST) -> list[ast.expr]:
    """What an f-string, `"%d" % n` or `"{}".format(n)` puts in."""
    if isinstance(node, ast.FormattedValue):
        return [node.value]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return [node.right]
    if isinstance(node, ast.Call) and called_name(node) == "format":
        return passed_values(node)
    return []
