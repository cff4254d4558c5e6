"""A null pointer to a function in the program's own C: what sets it, by its source.

`e->cost = (cost_fn)dlsym(e->so, "cost");` gives null where the library exports no such name, and the call behind it
goes to address 0. A pointer that a setter of the library is to set is null where nothing called that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    defined,
    function_around,
    statement_span,
    without_comments,
)
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.null_global import NullGlobal, set_by_functions
from pytracer.analyze.naming import LineWords, line_in, short_file
from pytracer.analyze.view import ProcessView

_CALLED = Pattern(r"(?<![\w.>])(?:\(\s*\*\s*)?(?P<name>[A-Za-z_]\w*(?:(?:->|\.)\w+)*)\s*\)?\s*\(")
_LOOKED_UP = Pattern(r"\bdlsym\s*\(\s*(?P<of>[^,()]+),\s*(?P<symbol>\"[^\"]*\"|\w+)\s*\)")
_NOTHING = Pattern(r"^(?:\([\w\s*]*\)\s*)?(?:NULL|nullptr|0)$")


class NoSymbol(msgspec.Struct, frozen=True):
    """`call` at `at`, in `function`, returned null; `target`: what is set to it. `calls`: lines that call that."""

    call: str
    of: str
    symbol: str
    at: LineWords
    function: str
    target: str
    calls: tuple[str, ...]
    opened_unchecked: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return f"`{self.target}` is null, as {self.at} sets it to what `{self.call}` returned, and nothing checks it"

    @property
    def advice(self) -> str:
        """What to look at, and the check that is missing."""
        calls = f" ({self.calls[0]} calls {self.function}())" if len(self.calls) == 1 else ""
        failed = ", or dlopen() could not open it" if self.opened_unchecked else ""
        return (
            f"Look at the library that `{self.of}` was opened from{calls}, by `nm -D`: it exports no {self.symbol} "
            f'(another name, `static`, or C++ without extern "C"){failed}. Let {self.function}() check what dlsym() '
            f"returns ({self.at}), and report dlerror()."
        )


def null_function(view: ProcessView) -> NoSymbol | NullGlobal | None:
    """None where the line does not show which pointer is null, or the file does not show what sets it."""
    if view.fault is None or view.fault.access != "execute":
        return None
    frame = next(filter(is_of_own_image, own_frames(view)[:2]), None)
    source = own_source(frame) if frame is not None else None
    if source is None or source[0].line is None:
        return None
    file, number, text = source[0].file or "", source[0].line, without_comments("\n".join(source[1]))
    place, end = statement_span(text.split("\n"), number)
    targets = set(_targets(text, text[place:end]))
    return _set_by(view, file, text, targets.pop()) if len(targets) == 1 else None


def _targets(text: str, running: str) -> Iterator[str]:
    """Pointers that the statement calls through: `e->cost`, `on_step`."""
    for match in _CALLED.finditer(running):
        name = match["name"]
        own = "->" in name or "." in name or re.search(rf"(?m)^(?:static\s+)?[\w\s*]+\b{name}\s*(?:=[^;]*)?;", text)
        if own and not defined(text, name):
            yield name


def _set_by(view: ProcessView, file: str, text: str, target: str) -> NoSymbol | NullGlobal | None:
    field = re.split(r"->|\.", target)[-1]
    owner = r"\w+(?:->|\.)" if field != target else r"(?<![\w.>])"
    found = re.finditer(rf"{owner}{field}\s*=(?!=)\s*(?P<value>[^;]*);", text)
    sets = [(around, item) for item in found if (around := function_around(text, item.start())) is not None]
    looked = [
        (around, match)
        for around, item in sets
        if (match := _LOOKED_UP.search(text, item.start("value"), item.end("value"))) is not None
    ]
    if looked:
        return _no_symbol(view, file, text, *looked[0], target) if len(sets) == 1 else None
    declared = re.search(rf"\b{field}\b", text) if field == target else None
    if declared is None:
        return None
    place = f"{short_file(file)}:{text.count(chr(10), 0, declared.start()) + 1}"
    written = [(around.name, _NOTHING.match(item["value"].strip()) is not None) for around, item in sets]
    return set_by_functions(view, target, place, written)


def _no_symbol(
    view: ProcessView, file: str, text: str, around: Function, found: re.Match[str], target: str
) -> NoSymbol:
    of = found["of"].strip()
    handle = re.escape(of)
    tests = rf"!\s*{handle}\b|{handle}\s*==\s*(?:NULL|nullptr|0)\b|if\s*\(\s*{handle}\s*\)"
    asked = re.search(tests, text)
    return NoSymbol(
        " ".join(found[0].split()),
        of,
        found["symbol"].strip('"'),
        line_in(file, text.count("\n", 0, found.start()) + 1, None),
        around.name,
        target,
        tuple(lines_that_call(view, (around.name,))),
        asked is None,
    )
