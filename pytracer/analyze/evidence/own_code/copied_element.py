"""An element of a container of C++ whose copy asked for absurd memory: `text += labels[id]`, with `id` beyond it.

std::vector checks no index. What lies behind its elements is read as a string or a vector, whose length is then any
number, and the copy ends by std::bad_alloc or std::length_error: nothing shows that the host's memory did not suffice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import Function, closing, function_around, statement_at
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_THROWN = frozenset({"std::bad_alloc", "std::length_error", "std::bad_array_new_length"})
_COPIES = Pattern(
    r"^(?:std::)?(?:__cxx11::)?(?:basic_string|vector|deque)\b|std::(?:__cxx11::)?(?:basic_string|vector)<"
)
_ELEMENT = Pattern(r"(?<![\w.>\]])(?P<owner>[A-Za-z_]\w*(?:\s*(?:\.|->)\s*\w+)*)\s*\[(?P<index>[^\[\]]+)\]")
_FILLS = r"\b{0}\s*(?:\.|->)\s*(?:push_back|emplace_back|resize|assign)\s*\("
_MOST, _QUOTED = 24, 60


class CopiedElement(msgspec.Struct, frozen=True):
    """`place`, in `function`, copies `element` of `owner`, and nothing there asks how many that has.

    `filled`: where that gets its elements, in `maker`; `made`: the only line of the program that calls it.
    """

    function: str
    place: LineWords
    element: str
    owner: str
    index: str
    line: str
    filled: LineWords | None = None
    maker: str | None = None
    made: LineWords | None = None

    @property
    def summary(self) -> str:
        """Behind the function in a headline."""
        return (
            f"`{self.element}`, which it copies, is probably beyond the elements of `{self.owner}`: nothing checks "
            f"`{self.index}`"
        )

    @property
    def advice(self) -> str:
        """What to compare, and where."""
        made = f", which {self.made} calls" if self.made is not None else ""
        filled = f" ({self.filled} in {self.maker}(){made}, fills it)" if self.filled is not None else ""
        return (
            f"Compare `{self.index}` with the number of elements of `{self.owner}`{filled} before {self.place} "
            f"uses it, or use .at(), which throws std::out_of_range: what {self.line} passes may count more of them, "
            "such as classes of a model or ids of another vocabulary. If the index is right, the element was "
            "overwritten, or the host's memory did not suffice."
        )


def copied_element(view: ProcessView) -> CopiedElement | None:
    """None where another exception was thrown, or the line copies no element of one container by an unasked index."""
    exception = cpp_exception(view)
    if exception is None or exception.type not in _THROWN:
        return None
    frames = own_frames(view)[:_MOST]
    at = next((n for n, frame in enumerate(frames) if is_of_own_image(frame)), None)
    sources = own_sources(frames[at]) if at is not None else []
    if at is None or not sources or not _is_copy(view):
        return None
    line, text = sources[0][0], plain("\n".join(sources[0][1]))
    if line.file is None or line.line is None:
        return None
    split = text.split("\n")
    place = statement_at(split, line.line)
    around = function_around(text, place)
    found = {(one["owner"], one["index"].strip()): one[0] for one in _ELEMENT.finditer(split[line.line - 1])}
    if around is None or len(found) != 1:
        return None
    (owner, index), element = next(iter(found.items()))
    if index.isdigit() or _is_compared(text, around, index):
        return None
    made = CopiedElement(
        around.name, line_in(line.file, line.line, None), shortened(element, _QUOTED), owner, index, line_words(view)
    )
    return _with_maker(view, made, text, line.file)


def _is_copy(view: ProcessView) -> bool:
    """Whether a function of a string or vector runs above the program's own."""
    return any(_COPIES.search(name) for name in _names_above(view))


def _names_above(view: ProcessView) -> Iterator[str]:
    for frame in view.native_stack or ():
        own = is_of_own_image(frame)
        lines = frame.lines or []
        yield from (line.function or "" for line in (lines[:-1] if own else lines))
        if own:
            return
        yield frame.function or ""


def _is_compared(text: str, around: Function, index: str) -> bool:
    """Whether the function compares the index with anything, but for the head of a loop over another container."""
    body = text[around.body : closing(text, around.body)]
    own = rf"(?<![\w.>]){re.escape(index)}(?!\w)"
    return re.search(rf"{own}\s*(?:[<>]=?|[!=]=)|(?:[<>]=?|[!=]=)\s*{own}", body) is not None


def _with_maker(view: ProcessView, found: CopiedElement, text: str, file: str) -> CopiedElement:
    """With where the container is filled, where that is in one function of the file."""
    name = re.split(r"\.|->", found.owner)[-1].strip()
    places = [match.start() for match in re.finditer(_FILLS.format(re.escape(name)), text)]
    makers = {around.name for at in places if (around := function_around(text, at)) is not None}
    if not places or len(makers) != 1:
        return found
    maker = makers.pop()
    lines = [*lines_that_call(view, (maker,))]
    return msgspec.structs.replace(
        found,
        filled=line_in(file, text.count("\n", 0, places[0]) + 1, None),
        maker=maker,
        made=lines[0] if len(lines) == 1 else None,
    )
