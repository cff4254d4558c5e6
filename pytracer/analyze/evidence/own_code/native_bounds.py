"""How far the running line of the program's own C or C++ counts, as its source says: the loops around it.

Read as text: `for (...; x < width; ...)`, what `width` was made of, and where an index of the line was itself read from
memory (`k = labels[i]`). Nothing is computed: what the line indexes, and by whose sizes, is for the reader to compare.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.native_source import own_lines
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_MOST_FRAMES, _MOST_LOOPS, _MOST_MOVED, _QUOTED = 4, 3, 3, 70
NAME = Pattern(r"(?<![\w.>])[A-Za-z_]\w*\b(?!\s*\()")
_INDEXES = Pattern(r"\w\s*\[")
LOOP = Pattern(
    r"\bfor\s*\([^;]*?\b(?P<name>\w+)\s*=\s*(?P<start>[^;]*);\s*(?P=name)\s*(?P<how><=?|!=)\s*(?P<bound>[^;]+?)\s*;"
)
_OWN_BOUND = Pattern(r"^\w+$")
_LOOKUP = Pattern(r"^\w+\s*\[[^=]*\]$")


class NativeBounds(msgspec.Struct, frozen=True):
    """`place` reads `text`; `loops`: `` `y` below `height`, which is `image.size(0)` ``; `reads`: looked-up indices."""

    place: str
    text: str
    loops: tuple[str, ...]
    reads: tuple[str, ...]

    @property
    def words(self) -> str:
        """A sentence, or two."""
        quoted = f"{self.place} is `{shortened(self.text, _QUOTED)}`"
        loops = f", for {list_words(self.loops)}" if self.loops else ""
        reads = f" It indexes by {list_words(self.reads)}." if self.reads else ""
        return f"{quoted}{loops}.{reads}"


def native_bounds(view: ProcessView) -> NativeBounds | None:
    """Of the innermost function of the program's own; None without its source, or where its line indexes nothing."""
    frame = running_frame(view)
    source = own_lines(frame) if frame is not None else None
    if source is None:
        return None
    file, lines = source
    if _is_elsewhere(view, lines[-1][1]):
        lines = _before(lines)
    if not lines:
        return None
    number, running = lines[-1]
    if not _INDEXES.search(_body(running)):
        return None
    texts = [text for _, text in lines]
    names = set(NAME.findall(_body(running)))
    reads: list[str] = []
    for name in sorted(names):
        value = assigned_value(texts[:-1], name)
        if value is not None:
            if _LOOKUP.match(value):
                reads.append(f"`{name}` = `{value}`")
            names |= set(NAME.findall(value))
    loops = [
        words
        for at, text in enumerate(texts)
        for match in LOOP.finditer(text)
        if not _counts_anew(texts[at + 1 :], match["name"]) and (words := _loop(texts, match, names))
    ]
    if not loops and not reads:
        return None
    loops = [*dict.fromkeys(reversed(loops))][:_MOST_LOOPS][::-1]  # each once
    return NativeBounds(f"{file}:{number}", _body(running).strip(), tuple(loops), tuple(reads))


def line_before(view: ProcessView) -> str | None:
    """`gridpool.c:27-28`, from the line that may have made an access up to the one that the debug information names.

    None where that line itself may have made it: an optimizing compiler moves a load into the next statement.
    """
    frame = running_frame(view)
    source = own_lines(frame) if frame is not None else None
    if source is None or not _is_elsewhere(view, source[1][-1][1]):
        return None
    lines = _before(source[1])
    return f"{source[0]}:{lines[-1][0]}-{source[1][-1][0]}" if lines else None


def _is_elsewhere(view: ProcessView, text: str) -> bool:
    """Whether an element was read by an index, and a line only sets elements."""
    instruction, fault = view.instruction, view.fault
    indexed = instruction is not None and instruction.index is not None
    return indexed and fault is not None and fault.access == "read" and bool(_INDEXES.search(text)) and not _reads(text)


def _reads(text: str) -> bool:
    """Whether a line has an element that it does more with than to set it."""
    for match in _INDEXES.finditer(text):
        end = closing(text, match.end() - 1)
        if end is None or not re.match(r"\s*=(?!=)", text[end + 1 :]):
            return True
    return False


def _before(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines up to the nearest one, of a few, that reads an element."""
    for left in range(len(lines) - 1, max(len(lines) - 1 - _MOST_MOVED, 0), -1):
        if _reads(lines[left - 1][1]):
            return [*lines[:left]]
    return []


def running_frame(view: ProcessView) -> NativeFrame | None:
    """Of the innermost function of the program's own, where at most a few others run above it."""
    return next((item for item in own_frames(view)[:_MOST_FRAMES] if is_own_frame(item)), None)


def _body(text: str) -> str:
    """What a line does, without the head of a loop in it."""
    head = LOOP.search(text)
    if head is None:
        return text
    depth = 0
    for at in range(text.index("(", head.start()), len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[at + 1 :] or text
    return text


def _loop(texts: Sequence[str], match: re.Match[str], names: set[str]) -> str | None:
    if match["name"] not in names:
        return None
    bound = match["bound"]
    value = assigned_value(texts, bound) if _OWN_BOUND.match(bound) else None
    up_to = {"<": "below", "<=": "up to", "!=": "until"}[match["how"]]
    of = f" = `{value}`" if value is not None and not value.isdecimal() else ""
    return f"`{match['name']}` {up_to} `{bound}`{of}"


def _counts_anew(texts: Sequence[str], name: str) -> bool:
    """Whether a later loop has the same counter: what an earlier one counted to is not where the line is."""
    head = re.compile(rf"\bfor\s*\([^;]*\b{re.escape(name)}\s*=(?!=)")
    return any(head.search(text) for text in texts)


def assigned_value(texts: Sequence[str], name: str) -> str | None:
    """What the only assignment to a variable says: `image.size(1)` of `h = image.size(0), w = image.size(1)`."""
    made = re.compile(rf"(?<![\w.>]){re.escape(name)}\s*=(?!=)\s*(?P<value>[^;]*)")
    found = [match["value"] for text in texts for match in made.finditer(LOOP.sub("", text))]
    return _first_item(found[0]) if len(found) == 1 else None


def last_value(text: str, name: str) -> str:
    """What a variable was last given before the end of a text; "" where it was changed since."""
    own = re.escape(name)
    given = [*re.finditer(rf"\b{own}\s*=(?!=)\s*([^;,]*)", text)]
    if not given or re.search(rf"\b{own}\s*(?:[-+*/%&|^]=|\+\+|--)|(?:\+\+|--)\s*{own}\b", text[given[-1].end() :]):
        return ""
    return given[-1][1].strip()


def _first_item(text: str) -> str | None:
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            text = text[:at]
            break
    return text.strip() or None
