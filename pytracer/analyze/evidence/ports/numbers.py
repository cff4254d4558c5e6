"""Whether an expression of a program is a given port: by constants, options, and variables of the environment."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._started_package import arguments
from pytracer.analyze.evidence.failing.expressions import computed
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.decode.types.snapshot import Snapshot

_DEEPEST, _DIGITS = 6, 20
_READS = ("get", "getenv", "setdefault", "pop")
_OF_ADDRESS = Pattern(r":(\d{1,5})$")  # `[::]:50051`, `tcp://*:5555`


class Ports(msgspec.Struct, frozen=True):
    """Of one process. `master`: what MASTER_PORT is known to be."""

    slice: Slice
    snapshot: Snapshot
    master: int | None

    def port(self, node: ast.expr, spot: Spot) -> int | None:
        """The port of a number, of an address `(host, port)`, or of a text with one; None where it is not known."""
        made = self.slice.made(node, spot, calls=True)
        address = made.node
        if isinstance(address, (ast.Tuple, ast.List)):
            return self.number(address.elts[1], made.spot) if len(address.elts) > 1 else None
        if isinstance(address, ast.Constant) and isinstance(address.value, str):
            found = _OF_ADDRESS.search(address.value)
            return int(found[1]) if found is not None else _whole(address.value)
        if isinstance(address, ast.JoinedStr):
            last = address.values[-1] if address.values else None  # of f""
            return self.number(last.value, made.spot) if isinstance(last, ast.FormattedValue) else None
        return self.number(address, made.spot)

    def number(self, node: ast.AST, spot: Spot, depth: int = _DEEPEST) -> int | None:
        """What the process has for it."""
        made = self.slice.made(node, spot, calls=True)
        found = made.node
        if isinstance(found, ast.Constant):
            return found.value if type(found.value) is int else _whole(found.value)
        if isinstance(found, ast.BinOp) and depth:
            left = self.number(found.left, made.spot, depth - 1)
            right = self.number(found.right, made.spot, depth - 1)
            return computed(found.op, left, right) if left is not None and right is not None else None
        argument = _argument(found, self.snapshot)
        if argument is not None:
            return _whole(argument)
        name, otherwise = _read(found)
        if name is not None:
            return self._of_environment(name, otherwise)
        return self._of_option(found) if isinstance(found, ast.Call) else None

    def _of_environment(self, name: str, otherwise: ast.expr | None) -> int | None:
        """What was set when the process began, or what the program has for a variable that is not."""
        known = self.master if name == "MASTER_PORT" else None
        given = _whole(self.snapshot.environment.get(name))
        default = otherwise.value if isinstance(otherwise, ast.Constant) else None
        return next((item for item in (known, given, _whole(default)) if item is not None), None)

    def _of_option(self, call: ast.Call) -> int | None:
        """Of `add_argument("--port", default=29500)`: what the command line has."""
        if called_name(call) != "add_argument":
            return None
        names = [item.value for item in call.args if isinstance(item, ast.Constant)]
        given = _passed(self.snapshot.argv, [item for item in names if isinstance(item, str)])
        default = keyword_value(call, "default")
        held = default.value if isinstance(default, ast.Constant) else None
        return _whole(held if given is None else given)


def _read(node: ast.AST) -> tuple[str | None, ast.expr | None]:
    """The variable of `os.environ["PORT"]`, `os.getenv("PORT", "80")`, and what it is without one."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
        return (str(node.slice.value), None) if isinstance(node.slice, ast.Constant) else (None, None)
    if not isinstance(node, ast.Call) or called_name(node) not in _READS or not node.args:
        return None, None
    owner = ast.unparse(node.func)
    key = node.args[0]
    if ("environ." not in owner and not owner.endswith("getenv")) or not isinstance(key, ast.Constant):
        return None, None
    return str(key.value), node.args[1] if len(node.args) > 1 else keyword_value(node, "default")


def _argument(node: ast.AST, snapshot: Snapshot) -> str | None:
    """Of `sys.argv[2]`, where the command line has it."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value) not in ("sys.argv", "argv"):
        return None
    given, place = arguments(snapshot.argv), node.slice.value if isinstance(node.slice, ast.Constant) else None
    return given[place] if isinstance(place, int) and 0 < place < len(given) else None


def _passed(argv: Sequence[str], names: Sequence[str]) -> str | None:
    for position, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option in names:
            return value if equals else next(iter(argv[position + 1 :]), None)
    return None


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if len(value) <= _DIGITS and value.isascii() and value.isdecimal() else None
    return value if type(value) is int else None
