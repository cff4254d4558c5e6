"""Memory for each thread of OpenMP that was made for fewer threads than run now: the others read behind the table.

`work = calloc(omp_get_max_threads(), ...)` when an object is made, `work[omp_get_thread_num()]` when it is used:
between the two the number of threads was raised, by the library or by torch. Read from the source beside the library;
the lines of the program that set the number are named.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import function_around
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.source_files import sources_beside
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_PARALLEL = Pattern(r"^(?P<name>\w+)(?:\._omp_fn|\.omp_outlined|\.\.omp_par)")
_NUMBER = "omp_get_thread_num"
_VARIABLE = Pattern(rf"\b(\w+)\s*=\s*{_NUMBER}\s*\(\s*\)")
_COUNTS = Pattern(r"\bomp_get_(?:max_threads|num_procs)\s*\(\s*\)")
_SETS = Pattern(r"\bomp_set_num_threads\s*\(")
_OF_TORCH = "set_num_threads"
_MOST = 3
_NEAR = 4  # frames: memcpy() and the like lie above


class PerThreadMemory(msgspec.Struct, frozen=True):
    """`indexed`: `b->work[omp_get_thread_num()]` and its place. `sized`: the function and place of the count."""

    indexed: str
    at: str
    count: str
    sized: str
    makes: tuple[str, ...]
    raises: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Behind the headline."""
        verb = "sets" if len(self.raises) == 1 else "set"
        changed = f"; {list_words(self.raises, _MOST)} {verb} that number" if self.raises else ""
        return (
            f"`{self.indexed}` ({self.at}) likely has fewer entries than threads run: {self.sized} makes one for each "
            f"of `{self.count}` at its time{changed}"
        )

    @property
    def advice(self) -> str:
        """The order to keep, or the change in C."""
        last = f" ({self.raises[-1]})" if self.raises else ""
        made = f" ({list_words(self.makes, _MOST)})" if self.makes else ""
        function = self.sized.partition(" ")[0]
        return (
            f"Set the number of threads{last} before {function} is called{made}, and call it again after each change. "
            f"Or keep the number that {function} made them for, and pass it to the parallel region: `num_threads(n)`; "
            "or let each thread allocate its own inside of the region."
        )


def per_thread_memory(view: ProcessView) -> PerThreadMemory | None:
    """None where the failing function is no parallel region of the program's own, or its source says something else."""
    thread = view.thread
    frame = next((item for item in own_frames(view)[:_NEAR] if is_own_path(item.image)), None)
    name = _PARALLEL.match(frame.function or "") if frame is not None else None
    if thread is None or thread.kind != "openmp" or frame is None or name is None:
        return None
    for path, lines in sources_beside(frame.image or ""):
        text = "\n".join(lines)
        indexed = list(_indexed(text, name["name"]))
        counts = [
            (item[0], item.start(), around.name)
            for item in _COUNTS.finditer(text)
            if (around := function_around(text, item.start())) is not None and around.name != name["name"]
        ]
        if len(indexed) != 1 or len({function for _, _, function in counts}) != 1:
            continue
        (expression, place), (count, at, function) = indexed[0], counts[0]
        setters = {
            around.name for item in _SETS.finditer(text) if (around := function_around(text, item.start())) is not None
        }
        return PerThreadMemory(
            expression,
            _place(path, text, place),
            count,
            f"{function}() ({_place(path, text, at)})",
            tuple(_calls(view, {function})),
            tuple(_calls(view, {*setters, _OF_TORCH})),
        )
    return None


def _indexed(text: str, function: str) -> Iterator[tuple[str, int]]:
    """What the function indexes by the number of its thread: `b->work[omp_get_thread_num()]`, `work[t]`."""
    names = [rf"{_NUMBER}\s*\(\s*\)", *(rf"{re.escape(item[1])}" for item in _VARIABLE.finditer(text))]
    for item in re.finditer(rf"[A-Za-z_][\w.]*(?:->[\w.]+)*\[\s*(?:{'|'.join(dict.fromkeys(names))})\s*\]", text):
        around = function_around(text, item.start())
        if around is not None and around.name == function:
            yield item[0], item.start()


def _place(path: str, text: str, at: int) -> str:
    return f"{short_file(path)}:{text.count(chr(10), 0, at) + 1}"


def _calls(view: ProcessView, functions: set[str]) -> Sequence[str]:
    """`line 69 (`lib.bank_threads(1)`)` of each call in the program's files."""
    found: dict[tuple[str, int], str] = {}
    for file, tree in program_files(view.process.snapshot, program_frames(view)).items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) in functions:
                found[file, item.lineno] = place_of(view, file, item.lineno).quoted(ast.unparse(item))
    return [found[key] for key in sorted(found)]
