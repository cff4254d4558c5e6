"""A child that the program started with a text as its program, `[sys.executable, "-c", WATCH, str(limit)]`.

The line that starts it is found by its text, which the child has on its command line. So is the expression that the
program passes for one of the child's arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from pytracer._library_files import is_library_file
from pytracer._started_package import arguments, text_of
from pytracer.analyze.evidence.ports.numbers import Ports
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_STARTS = frozenset({"Popen", "run", "call", "check_call", "check_output"})
_TURNS = frozenset({"str", "repr"})
_LOOKED_AT = 512  # storages whose line may be of the program


class StartedText(msgspec.Struct, frozen=True):
    """`file`, `line`: where the child is started, in `function`. `option`: of an argument, `--quota`, with `value`."""

    file: str
    line: int
    function: str | None
    option: str | None
    value: int | None

    @property
    def place(self) -> LineWords:
        """`train.py:27 in watch`."""
        within = f" in {self.function}" if self.function is not None else ""
        return LineWords(f"{self.file.rsplit('/', 1)[-1]}:{self.line}{within}", self.file, self.line)


def own_frame(snapshot: Snapshot) -> PythonFrame | None:
    """A line of the program that made a tensor: what is left of a process that was killed."""
    for storage in islice(snapshot.storages.by_size(), _LOOKED_AT):
        place = storage.allocated_by.place
        if place is not None and place.file.startswith("/") and not is_library_file(place.file):
            return python_frame(place)
    return None


def started_text(parent: ProcessView, child: Snapshot, argument: int | None) -> StartedText | None:
    """By its parent; `argument`: the place in the child's sys.argv that is asked for."""
    snapshot, text = parent.process.snapshot, text_of(child.argv)
    frame = parent.python_frame or own_frame(snapshot)
    if text is None or frame is None or child.ppid != snapshot.pid:
        return None
    back, files = Slice(snapshot, [frame]), program_files(snapshot, [frame])
    found = [item for item in _starts(files, back) if _text(back, *item) == text]
    if len(found) != 1:
        return None
    words, place, spot = found[0]
    option, value = None, None
    count = len(arguments(child.argv))
    if argument is not None and len(words.elts) - place == count and 0 < argument < count:
        option, value = _passed(back, snapshot, words.elts[place + argument], _called(files, spot))
    function = getattr(spot.scope, "name", None)
    return StartedText(spot.file or "", words.lineno, function, option, value)


def _starts(files: Mapping[str, ast.Module], back: Slice) -> Iterator[tuple[ast.List | ast.Tuple, int, Spot]]:
    """The command lines with `-c`, each with the place of its text."""
    for file, tree in files.items():
        for call in nodes_of(tree):
            if not isinstance(call, ast.Call) or called_name(call) not in _STARTS or not call.args:
                continue
            spot = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
            made = back.made(call.args[0], spot, calls=False)
            words = made.node.elts if isinstance(made.node, (ast.List, ast.Tuple)) else []
            for place, word in enumerate(words[:-1]):
                if (
                    isinstance(word, ast.Constant)
                    and word.value == "-c"
                    and isinstance(made.node, (ast.List, ast.Tuple))
                ):
                    yield made.node, place + 1, made.spot


def _text(back: Slice, words: ast.List | ast.Tuple, place: int, spot: Spot) -> str | None:
    made = back.made(words.elts[place], spot, calls=False).node
    return made.value if isinstance(made, ast.Constant) and isinstance(made.value, str) else None


def _called(files: Mapping[str, ast.Module], spot: Spot) -> Spot:
    """With the only call of the function around it."""
    name = getattr(spot.scope, "name", None)
    calls = [*calls_named(files, name)] if name is not None else []
    if len(calls) != 1:
        return spot
    file, tree, call = calls[0]
    return replace(spot, call=(call, Spot(file, tree, scope_of(tree, call.lineno), call.lineno)))


def _passed(back: Slice, snapshot: Snapshot, word: ast.expr, spot: Spot) -> tuple[str | None, int | None]:
    """The option of argparse that `str(limit)` is of, and its value."""
    if isinstance(word, ast.Call) and called_name(word) in _TURNS and len(word.args) == 1:
        word = word.args[0]
    elif isinstance(word, ast.JoinedStr) and len(word.values) == 1 and isinstance(word.values[0], ast.FormattedValue):
        word = word.values[0].value
    return option_of(back, word, spot), Ports(back, snapshot, None).number(word, spot)


def option_of(back: Slice, node: ast.expr, spot: Spot) -> str | None:
    """`--mem`, of `args.mem`, and of what turns it into bytes, `args.mem * 2**20`."""
    found = back.made(node, spot, calls=True)
    if isinstance(found.node, ast.BinOp) and isinstance(found.node.right, (ast.Constant, ast.BinOp)):
        found = back.made(found.node.left, found.spot, calls=True)
    made = found.node
    if not isinstance(made, ast.Call) or called_name(made) != "add_argument":
        return None
    names = [item.value for item in made.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return next((item for item in names if item.startswith("--")), None)
