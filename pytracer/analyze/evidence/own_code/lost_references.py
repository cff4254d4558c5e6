"""A reference of a Python object that the program's own C gives away, or gives back, though it never had it.

PyDict_GetItem(), PyList_GetItem() and the like lend what they return. A function that returns that to Python without
Py_INCREF(), or calls Py_DECREF() of it, takes one reference from the object at each call, until it is freed while its
container still holds it: the interpreter then dies in a destructor or in the garbage collector, at any later line.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.own_code.c_text import closing, defined, function_around, without_comments
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.source_files import sources_beside
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView

_LENDS = (
    r"(?P<lender>PyDict_GetItem(?:String|WithError)?|PyList_GetItem|PyList_GET_ITEM|PyTuple_GetItem|PyTuple_GET_ITEM"
    r"|PySequence_Fast_GET_ITEM|PySys_GetObject)\s*\("
)
_CAST = r"(?:\(\s*\w+\s*\*\s*\)\s*)?"
_KEPT = Pattern(r"\b(?P<name>[A-Za-z_]\w*)\s*=\s*" + _CAST + _LENDS)
_RETURNED = Pattern(r"\breturn\s+" + _CAST + _LENDS)
_TAKES = r"\w*(?i:incref|newref|increment|retain|borrow)\w*\s*[(<][^;]*\b{0}\b"  # with a cast, by a macro of its own
_TAKEN = Pattern(r"(?i)incref|newref")
_GIVES = r"\b(?P<gives>Py_X?DECREF|Py_CLEAR)\s*\(\s*{0}\s*\)|\breturn\s+{0}\s*;"
_SET = r"\b{0}\s*=(?!=)\s*(?P<value>[^;]*)"
_ENDS = Pattern(r"_dealloc\b|^_Py_Dealloc|^_PyTrash|^gc_collect|^visit_(?:decref|reachable)|^subtract_refs|^deduce_unr")
_MOST = 3


class LostReference(msgspec.Struct, frozen=True):
    """`function` gives away what `lender` lent it, at `place`, by `how`; `calls`: the program's lines that call it."""

    function: str
    lender: str
    name: str
    how: str | None
    place: str
    calls: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Behind a colon in the headline."""
        calls = f", which {list_words(self.calls, _MOST)} calls," if self.calls else ""
        does = f"calls {self.how} of" if self.how is not None else "returns"
        return (
            f"an object of Python's was freed too early; {self.function}(){calls} {does} what {self.lender}() only "
            f"lends ({self.place})"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        loses = "each call takes one reference from an object that its container still holds, until it is freed there"
        lent = f"{self.lender}() gives no reference"
        if self.how is not None:
            return f"Leave out {self.how} of `{self.name}` at {self.place}: {lent}, and {loses}."
        return (
            f"Write `return Py_XNewRef({self.name});` at {self.place} (or Py_INCREF() before it): {lent}, "
            f"{self.function}() must return one of its own, and {loses}."
        )


def lost_reference(view: ProcessView) -> LostReference | None:
    """The only one in the sources of the program's libraries; None where no object was being freed or visited."""
    crash = view.crash
    if crash is None or not any(_ENDS.search(name) for name in [*functions(view)][:2]):
        return None
    files = program_files(view.process.snapshot, program_frames(view))
    found = dict[str, LostReference]()
    for path in sorted({item.path for item in crash.images if is_own_path(item.path)}):
        for file, lines in sources_beside(path):
            text = without_comments("\n".join(lines))
            for at, function, lender, name, how in _lost(text):
                calls = tuple(place_of(view, one, call.lineno) for one, _, call in calls_named(files, function))
                # others of its own C may know that it lends
                if _is_method(text, function) or (calls and not _is_of_python(files, function)):
                    place = f"{os.path.basename(file)}:{text.count(chr(10), 0, at) + 1}"
                    found[place] = LostReference(function, lender, name, how, place, calls)
    return next(iter(found.values())) if len(found) == 1 else None


def _lost(text: str) -> Iterator[tuple[int, str, str, str, str | None]]:
    """Where, in which function, what lent it, its name and Py_DECREF, or None of what is returned."""
    for match in _RETURNED.finditer(text):
        around, end = function_around(text, match.start()), closing(text, match.end() - 1)
        if around is not None and end is not None:
            call = text[text.index(match["lender"], match.start()) : end + 1]
            yield match.start(), around.name, match["lender"], call, None
    for match in _KEPT.finditer(text):
        around = function_around(text, match.start())
        end = closing(text, around.body) if around is not None else None
        if around is None or end is None:
            continue
        body, name = text[around.body : end], re.escape(match["name"])
        values = [item["value"].strip() for item in re.finditer(_SET.format(name), body)]
        is_lent = all(value == "NULL" or re.match(_CAST + _LENDS, value) for value in values)
        gives = re.compile(_GIVES.format(name)).search(text, match.end(), end)
        if is_lent and gives is not None and not _takes(text, body, name):
            yield gives.start(), around.name, match["lender"], match["name"], gives["gives"]


def _takes(text: str, body: str, name: str) -> bool:
    """Whether a function takes a reference of it, by itself or by a helper of the same file."""
    if re.search(_TAKES.format(name), body) is not None:
        return True
    helpers = {item["called"] for item in re.finditer(rf"\b(?P<called>\w+)\s*\([^;()]*\b{name}\b", body)}
    for function in (one for called in sorted(helpers) for one in defined(text, called)):
        if _TAKEN.search(text[function.body : closing(text, function.body)]) is not None:
            return True
    return False


def _is_of_python(files: Mapping[str, ast.Module], name: str) -> bool:
    """Whether the program has a function or method of that name: its calls are of that one."""
    return any(
        isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name
        for tree in files.values()
        for item in nodes_of(tree)
    )


def _is_method(text: str, function: str) -> bool:
    """Whether a table of methods gives it to Python."""
    return (
        re.search(rf"\{{\s*\"\w+\"\s*,\s*(?:\(\s*PyCFunction\s*\)\s*(?:\(\s*void[^)]*\)\s*\)\s*)?)?{function}\b", text)
        is not None
    )
