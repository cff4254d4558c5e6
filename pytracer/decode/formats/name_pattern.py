"""File names by a pattern of CUDA's: `%h` is a host, `%p` a process id, any other `%x` is something."""

from __future__ import annotations

from itertools import pairwise

_LONGEST = 255  # bytes of a file name
_MOST_STEPS = 2_000_000  # for all names of a directory: about a second


class NamePattern:
    """A pattern without folders; no regular expression, because it comes from a file.

    A pathologically slow pattern matches nothing after it has taken a second.
    """

    def __init__(self, pattern: str) -> None:
        """A `%` before anything but a letter is literal."""
        self._steps_left = _MOST_STEPS
        self._parts: list[str] = []  # a letter of the pattern: itself; "%h", "%p" or "%*"
        at = 0
        while at < len(pattern):
            two = pattern[at : at + 2]
            if two[0] == "%" and two[1:].isascii() and two[1:].isalpha():
                known = two if two in ("%h", "%p") and two not in self._parts else "%*"
                if known != "%*" or self._parts[-1:] != ["%*"]:
                    self._parts.append(known)
                at += 2
            else:
                self._parts.append(two[0])
                at += 1

    def match(self, name: str) -> tuple[str | None, int | None] | None:
        """Host and process id, None for those missing in the pattern; None if the name does not match."""
        if len(name) > _LONGEST or len(self._parts) > 2 * _LONGEST:
            return None
        ends = self._ends(name)
        if ends is None:
            return None
        spans = {part: name[begin:end] for part, begin, end in ends}
        pid = spans.get("%p")
        return spans.get("%h"), int(pid) if pid is not None else None

    def _ends(self, name: str) -> list[tuple[str, int, int]] | None:
        """Each wildcard with its place. Steps that failed once are not tried again."""
        failed: set[tuple[int, int]] = set()
        path: list[tuple[int, int]] = [(0, 0)]  # (part, begin); the alternatives of a wildcard are its ends
        tried: dict[tuple[int, int], int] = {}
        while path and self._steps_left > 0:
            self._steps_left -= 1
            part, begin = path[-1]
            if part == len(self._parts):
                if begin == len(name):
                    return self._spans(path)
                failed.add(path.pop())
                continue
            end = self._next_end(part, begin, tried.get((part, begin)), name)
            if end is None:
                failed.add(path.pop())
                continue
            tried[part, begin] = end
            if (part + 1, end) not in failed:
                path.append((part + 1, end))
        return None

    def _next_end(self, part: int, begin: int, last: int | None, name: str) -> int | None:
        """Where a part that begins there may end, longest first, after `last`."""
        kind = self._parts[part]
        if not kind.startswith("%") or len(kind) == 1:
            return begin + 1 if last is None and name.startswith(kind, begin) else None
        if last is None:
            end = len(name)
            if kind == "%p":
                end = begin
                while end < len(name) and end - begin < 10 and name[end] in "0123456789":
                    end += 1
        else:
            end = last - 1
        least = begin if kind == "%*" else begin + 1
        return end if end >= least else None

    def _spans(self, path: list[tuple[int, int]]) -> list[tuple[str, int, int]]:
        steps = pairwise(path)
        return [(self._parts[part], begin, end) for (part, begin), (_, end) in steps if len(self._parts[part]) == 2]
