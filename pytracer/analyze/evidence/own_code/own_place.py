"""The innermost line of the program's own C++ on the native stack, also where it is in a lambda of another function."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import function_around, statement_at
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_MOST_FRAMES = 24


class OwnPlace(msgspec.Struct, frozen=True):
    """`text` at `place` (`main.cpp:12`), in `function`."""

    function: str
    place: str
    text: str


def own_place(view: ProcessView) -> OwnPlace | None:
    """None where no frame has source that is known, or its function is not found in that."""
    for frame in filter(is_of_own_image, own_frames(view)[:_MOST_FRAMES]):
        for line, lines in own_sources(frame)[:1]:
            number = line.line or 0
            text = "\n".join(lines)
            around = function_around(text, statement_at(lines, number))
            if around is None:
                return None
            return OwnPlace(around.name, f"{short_file(line.file or '')}:{number}", lines[number - 1].strip())
    return None
