"""Lines of the program's source, numbered; the one that failed is marked."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from pytracer._library_files import is_library_file
from pytracer.render.frames import short_file
from pytracer.render.printing import LABEL_WIDTH
from pytracer.render.style import DEFAULT_WIDTH
from pytracer.report import job as r

_AROUND = 2  # on each side
_MOST_ROWS = 3
_GOES_ON = "    "
_ROOM = DEFAULT_WIDTH - LABEL_WIDTH - 1


def code_lines(code: Sequence[r.CodeLine]) -> list[str]:
    """`  12  rows = load(path)`, below its function, and its file where that is not the last line's, which failed."""
    last, above = code[-1], None
    shown = []
    for item in _by_source(code):
        where = _function(item)
        if where != above and not (above is None and where == _function(last)):
            file = f" ({short_file(item.file)})" if item.file != last.file else ""
            shown.append(f"in {item.function or 'the module'}{file}:")
        above = where
        number = f"{'>' if item is last else ' '} {item.line or '?':>4}  "
        first, *rest = _rows(item.text or "", _ROOM - len(number))
        shown.append(number + first)
        shown += [" " * len(number) + row for row in rest]
    return shown


def _by_source(code: Sequence[r.CodeLine]) -> list[r.CodeLine]:
    """Those of the failing function in the order of the source: of a loop, a line below may have run before it."""
    last = code[-1]
    first = next((n for n in range(len(code), 0, -1) if _function(code[n - 1]) != _function(last)), 0)
    return [*code[:first], *sorted(code[first:], key=lambda item: item.line or 0)]


def _function(item: r.CodeLine) -> tuple[str | None, str | None]:
    return item.file, item.function


def _rows(text: str, room: int) -> list[str]:
    """A long statement goes on below: what matters of a call is often its last argument."""
    end = " ..."
    return wrap(
        text, room, subsequent_indent=_GOES_ON, break_on_hyphens=False, max_lines=_MOST_ROWS, placeholder=end
    ) or [""]


def snippet_lines(subject: r.ProcessReport, sources: Sequence[r.SourceSnippet]) -> list[str]:
    """The lines around the innermost frame of the program whose source is in the report."""
    known = {(item.file, item.line): item for item in sources}
    exception = subject.exception.python_stack if subject.exception else None
    stack = subject.python_stack or exception or []
    own = [frame for frame in stack if not is_library_file(frame.file)]
    found = next((known[f.file, f.line] for f in (own or stack) if (f.file, f.line) in known), None)
    if found is None or found.first_line is None or found.line is None:
        return []
    numbered = [
        (number, f"{'>' if number == found.line else ' '} {number:>4}  {text}")
        for number, text in enumerate(found.lines or (), found.first_line)
    ]
    return [text.rstrip() for number, text in numbered if abs(number - found.line) <= _AROUND]
