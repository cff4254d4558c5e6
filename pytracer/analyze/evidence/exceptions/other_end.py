"""Exceptions that are about another process, a peer or a stream's end, and not about the values of the line.

Not those that may be about a timeout, a name of a host or the number of a process that the line passes.
"""

from __future__ import annotations

from pytracer._patterns import Pattern

_OF_OTHER_END = Pattern(
    r"(?:^|\.)(?:AuthenticationError|EOFError|\w*Connection\w*Error|BrokenPipeError"
    r"|BrokenProcessPool|BrokenThreadPool|ChildProcessError|RemoteDisconnected|IncompleteRead"
    r"|Dist(?:Network|Store)Error|SSLError)$"
)


def is_of_other_end(kind: str | None) -> bool:
    """Whether an exception's type says so, as Python has it: `multiprocessing.context.AuthenticationError`."""
    return _OF_OTHER_END.search(kind or "") is not None
