"""An exception of another process or thread that torch raised again: its text holds the first one's traceback."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytracer._text import message_words
from pytracer.analyze.parts import is_library_file
from pytracer.report.job import ExceptionReport, PythonFrame

# torch._utils.ExceptionWrapper and torch.multiprocessing.spawn, and what Python prints of a traceback.
_WHERE = re.compile(r"^Caught \w+ (in [^\n]{1,120}?)\.\n|^\s*-- (Process \d+) terminated with the following error:")
_HEAD = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "([^"\n]{1,1000})", line (\d{1,9}), in (\S{1,200})$', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")


@dataclass(frozen=True)
class Reraised:
    """The first exception: `where` is "in DataLoader worker process 1", `frame` its innermost line of the program."""

    type: str
    message: str
    where: str
    frame: PythonFrame | None

    @property
    def words(self) -> str:
        """`KeyError: 'cat'`."""
        return f"{self.type}: {self.message}" if self.message else self.type


def reraised(exception: ExceptionReport | None) -> Reraised | None:
    """None where the exception is the first one, or its text was cut before the traceback ended."""
    text = exception.message or "" if exception is not None else ""
    told = _WHERE.search(text)
    if told is None or _HEAD not in text:
        return None
    traceback = text.rpartition(_HEAD)[2]
    frames = list(_FRAME.finditer(traceback))
    lines = traceback[frames[-1].end() :].splitlines() if frames else []
    last = next((found for line in lines if not line.startswith(" ") and (found := _RAISED.match(line))), None)
    if last is None:
        return None
    own = [item for item in frames if not is_library_file(item[1])] or frames
    frame = PythonFrame(function=own[-1][3], file=own[-1][1], line=int(own[-1][2]))
    where = told[1] or f"in {told[2][0].lower()}{told[2][1:]}"
    return Reraised(last[1], message_words(last[2] or ""), where, frame)
