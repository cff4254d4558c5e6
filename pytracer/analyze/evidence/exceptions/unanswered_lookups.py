"""A __getattr__ that answers pickle or copy with another exception than AttributeError.

pickle and copy ask objects for methods such as `__setstate__` and `__deepcopy__`, and a new object before its __init__
has run. Only AttributeError is for them the answer "there is none"; a KeyError goes on to the program.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import is_attribute
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of, second_parameter, spans
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_LOOKUPS = ("__getattr__", "__getattribute__")
_NO_ATTRIBUTE = Pattern(r"'(?P<kind>[\w.]+)' object has no attribute '(?P<name>\w+)'")
_KEY = Pattern(r"^'(\w+)'$")
_SPECIAL = Pattern(r"^__\w+__$")
_UNPICKLES = {
    ("/multiprocessing/queues.py", "get"), ("/multiprocessing/connection.py", "recv"), ("/pickle.py", "load_build"),
    ("/torch/serialization.py", "load"), ("/torch/serialization.py", "_load"),
    ("/torch/serialization.py", "_legacy_load"), ("/copy.py", "_reconstruct"), ("/multiprocessing/spawn.py", "_main"),
}  # fmt: skip
_ASKS = {
    ("/multiprocessing/reduction.py", "dumps"), ("/multiprocessing/reduction.py", "dump"), ("/pickle.py", "save"),
    ("/torch/serialization.py", "_save"), ("/torch/serialization.py", "_legacy_save"), ("/copy.py", "copy"),
    ("/copy.py", "deepcopy"),
}  # fmt: skip
_LOADS, _DUMPS = ("loads", "load"), ("dumps", "dump")
_LOADER = "/torch/utils/data/dataloader.py"


class UnansweredLookup(msgspec.Struct, frozen=True):
    """As an explanation of an exception. `line`: the program's line that has the object copied, sent or loaded."""

    subject: str
    advice: str
    line: LineWords | None


class _Asker(msgspec.Struct, frozen=True):
    """Who asked: `does` is `copy.deepcopy()`, `pickle`; `new`: whether of an object that has no __init__ behind it."""

    does: str
    new: bool


class _Lookup(msgspec.Struct, frozen=True):
    """`words`: `Record.__getattr__()`; `name`: its parameter; `kind`: what it raises.

    `asked`: the special method that it was asked for; `missing`: the attribute that was not set.
    """

    words: str
    name: str | None
    kind: str
    asked: str | None
    missing: str | None


def unanswered_lookup(
    snapshot: Snapshot, exception: ExceptionReport, stack: Sequence[PythonFrame]
) -> UnansweredLookup | None:
    """None for an AttributeError, which is the right answer, and where the program itself asked for the attribute."""
    kind = (exception.type or "").rpartition(".")[2]
    looked = [n for n, item in enumerate(_begin(stack)) if _name(item) in _LOOKUPS]
    if not looked or kind == "RecursionError" or kind.endswith("AttributeError"):  # by its name, a subclass of that
        return None
    inner, outer = stack[looked[-1]], stack[looked[-1] + 1 :]
    tree = syntax_tree(snapshot, inner)
    asker = _asker(snapshot, outer[0]) if outer else None
    if asker is None or tree is None:
        return None
    asked, missing = _names(exception, tree)
    if asked is None and (missing is None or not asker.new or _reads_itself(snapshot, outer[0], missing)):
        return None
    scope = scope_of(tree, inner.line or 0)
    owner = class_around(tree, scope)
    lookup = f"{owner.name}.{_name(inner)}()" if owner is not None else f"{_name(inner)}()"
    return _told(exception, stack, asker, _Lookup(lookup, second_parameter(scope), kind, asked, missing))


def _told(exception: ExceptionReport, stack: Sequence[PythonFrame], asker: _Asker, found: _Lookup) -> UnansweredLookup:
    lookup, kind, asked, missing = found.words, found.kind, found.asked, found.missing
    inside = _inside(stack)
    line = next((item for item in stack if not is_library_file(item.file) and _name(item) not in inside), None)
    where = line_in(line.file, line.line, stack[0].file) if line is not None else None
    missed = _missed(exception)
    made = _an(missed[-1][0] if missed else lookup.removesuffix("()").partition(".")[0])
    wanted = f"`{asked}`" if asked is not None else "a method such as `__setstate__`"
    unset = f", where `{missing}` is not set yet" if asker.new and missing is not None else ""
    does = (
        f"{asker.does} makes {made} without __init__ and asks it for" if asker.new else f"{asker.does} asks {made} for"
    )
    subject = f"{does} {wanted}{unset}; {lookup} answers with {kind}, which does not mean there is none"
    does = "loaded or copied" if asker.new else "copied or pickled"
    at = f"{where[0].upper()}{where[1:]} has the object {does}. " if where else ""
    sends = any((item.file or "").endswith(_LOADER) for item in stack)
    other = (
        " Or let the dataset and collate_fn return tensors and dicts (num_workers=0 sends nothing)." if sends else ""
    )
    advice = f"{at}Only AttributeError means that there is none: {_change(found)} at line {stack[0].line}.{other}"
    return UnansweredLookup(subject, advice, where)


def _change(found: _Lookup) -> str:
    """A __getattribute__ is asked for all attributes, those of every object, too, and may refuse none by its name."""
    instead = f"raise AttributeError in place of {found.kind}"
    if found.name is None or "__getattribute__" in found.words:
        return instead
    test = f'{found.name}.startswith("__")' + (f' or {found.name} == "{found.missing}"' if found.missing else "")
    return f"begin {found.words} with `if {test}: raise AttributeError({found.name})`, or {instead}"


def _begin(stack: Sequence[PythonFrame]) -> list[PythonFrame]:
    """The innermost frames, up to the first of a library."""
    end = next((n for n, item in enumerate(stack) if is_library_file(item.file)), len(stack))
    return list(stack[:end])


def _inside(stack: Sequence[PythonFrame]) -> set[str]:
    """The functions that the lookup called, and itself."""
    begin = _begin(stack)
    last = max(n for n, item in enumerate(begin) if _name(item) in _LOOKUPS)
    return {_name(item) for item in begin[: last + 1]}


def _name(frame: PythonFrame) -> str:
    return (frame.function or "").rpartition(".")[2]


def _an(name: str) -> str:
    if name in _LOOKUPS:
        return "an object"
    return f"an {name}" if name[:1] in "AEIOU" else f"a {name}"


def _missed(exception: ExceptionReport) -> list[tuple[str, str]]:
    """Class and name of each attribute that was not there, by the exceptions that were handled."""
    messages = (item.message or "" for item in exception.context or ())
    found = (match for text in messages if (match := _NO_ATTRIBUTE.search(text)) is not None)
    return [(match["kind"].rpartition(".")[2], match["name"]) for match in found]


def _names(exception: ExceptionReport, tree: ast.Module) -> tuple[str | None, str | None]:
    """The special method that was asked for, and the attribute that was not set: by the messages."""
    key = _KEY.match(exception.message or "")
    known = key is not None and (_SPECIAL.match(key[1]) or any(is_attribute(item, key[1]) for item in nodes_of(tree)))
    names = [*([key[1]] if key is not None and known else []), *(name for _, name in _missed(exception))]
    special = [item for item in names if _SPECIAL.match(item)]
    plain = [item for item in names if not _SPECIAL.match(item)]
    return (special[-1] if special else None), (plain[0] if plain else None)


def _asker(snapshot: Snapshot, frame: PythonFrame) -> _Asker | None:
    """Of the frame below which the lookup ran: a function of pickle or copy, or a line that calls C's pickle."""
    for files, new in ((_UNPICKLES, True), (_ASKS, False)):
        for ending, function in files:
            if (frame.file or "").endswith(ending) and _name(frame) == function:
                return _Asker("copy" if ending == "/copy.py" else "pickle", new)
    tree = syntax_tree(snapshot, frame) if not is_library_file(frame.file) else None
    calls = calls_on(tree, frame.line or 0) if tree is not None else []
    named = [item for item in calls if called_name(item) in (*_LOADS, *_DUMPS) and _is_of_pickle(item)]
    return _Asker(short(source(named[0].func)) + "()", called_name(named[0]) in _LOADS) if len(named) == 1 else None


def _reads_itself(snapshot: Snapshot, frame: PythonFrame, name: str) -> bool:
    """Whether the line of the program asks for it: `pickle.loads(record.payload)`."""
    tree = syntax_tree(snapshot, frame) if not is_library_file(frame.file) else None
    line = frame.line or 0
    return tree is not None and any(
        isinstance(item, ast.Attribute) and item.attr == name and spans(item, line) for item in nodes_of(tree)
    )


def _is_of_pickle(call: ast.Call) -> bool:
    """`pickle.loads(data)`, `ForkingPickler.dumps(x)`; no json.load()."""
    return "pickle" in ast.unparse(call.func).lower()
