"""Files of loggers: logging keeps each logger and its handlers for good, and with them their open files."""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_HANDLERS = frozenset({"FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler", "WatchedFileHandler"})


def logger_files(at: FailingLine) -> str | None:
    """What to do at the only line of the program that makes such a handler, where none is taken away again."""
    calls = [(file, item) for file, tree in at.files.items() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    made = [(file, item) for file, item in calls if called_name(item) in _HANDLERS]
    if len(made) != 1 or any(called_name(item) == "removeHandler" for _, item in calls):
        return None
    file, call = made[0]
    return (
        f"{capital(at.in_file(file, call.lineno))} (`{short(source(call))}`) opens a file each time that it runs, and "
        "its logger keeps that open for good: when a logger is done, call removeHandler() and the handler's close(). "
        "Else look for other files that stay open."
    )
