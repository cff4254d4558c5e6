"""The line of the program that sets a limit: its only `resource.setrlimit(resource.RLIMIT_AS, ...)`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.limits.numbers import ADDRESS_SPACE, CPU, DATA, FILE_SIZE, FILES, STACK, USER_THREADS
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import constant_number
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

RESOURCES = {
    ADDRESS_SPACE: "RLIMIT_AS", DATA: "RLIMIT_DATA", FILES: "RLIMIT_NOFILE", FILE_SIZE: "RLIMIT_FSIZE",
    CPU: "RLIMIT_CPU", USER_THREADS: "RLIMIT_NPROC", STACK: "RLIMIT_STACK",
}  # fmt: skip
_QUOTED = 90
_INFINITY = "INFINITY"


class Setter(msgspec.Struct, frozen=True):
    """`place`: `line 50`, or `worker.py:12` in another file than that of the stack's innermost frame."""

    place: str
    text: str


def setter_of(
    snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, limit: int | None, here: str | None
) -> Setter | None:
    """None where the program sets that limit at several lines, or to another number than was in force.

    `limit`: the number; None where it is not known: any that is one.
    `here`: the file that the sentence names; None where it names none.
    """
    resource = RESOURCES.get(name)
    found: list[tuple[str, ast.Call, ast.Module]] = []
    for file, tree in program_files(snapshot, frames).items() if resource is not None else ():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) not in ("setrlimit", "prlimit"):
                continue
            if any(last_name(part) == resource for part in item.args):
                found.append((file, item, tree))
    if len(found) != 1:
        return None
    file, call, tree = found[0]
    numbers = [constant_number(part, tree) for part in _parts(call.args[-1])]
    if numbers and None not in numbers and limit is not None and limit not in numbers:
        return None
    if limit is None and _INFINITY in ast.unparse(call):
        return None
    place = line_in(file, call.lineno, here)
    return Setter(place, shortened(ast.unparse(call), _QUOTED))


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
