"""The local array that takes the stack of a native function: of a size that its arguments decide, or simply large."""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import size_words
from pytracer.analyze.address_space.stack_bounds import stack_bounds
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_source import LocalArray, function_lines, local_arrays
from pytracer.analyze.view import ProcessView

_BYTES = {
    **dict.fromkeys(("char", "int8_t", "uint8_t", "bool"), 1),
    **dict.fromkeys(("short", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("int", "unsigned", "float", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("long", "double", "int64_t", "uint64_t", "size_t", "ssize_t"), 8),
}
_LEAST_PART = 4  # of the stack: what a fixed array takes that is worth a name, and the frame of one of unknown size
_ALLOCA = Pattern(r"\balloca\s*\(|__builtin_alloca")
_COMMENT = Pattern(r"//.*|/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_CALL = Pattern(r"\b(?!sizeof\b)[A-Za-z_]\w*\s*\(")
_NAME = Pattern(r"\b[A-Za-z_]\w*\b")


class LargeLocal(msgspec.Struct, frozen=True):
    """`frame_bytes`: what the function's frame takes, where its registers show that. `nbytes`: of the array itself."""

    array: LocalArray
    frame_bytes: int | None
    nbytes: int | None = None

    @property
    def summary(self) -> str:
        """`` `float data[w*h*c]` (letterbox.c:16) is a local array, and the frame takes 23.7 MiB ``."""
        takes = f" of {size_words(self.nbytes)}" if self.nbytes is not None else ""
        takes = f", and its frame takes {size_words(self.frame_bytes)}" if self.frame_bytes is not None else takes
        return f"`{self.array.type} {self.array.name}{self.array.bounds}` ({self.array.place}) is a local array{takes}"

    def advice(self, more: str) -> str:
        """The change to make. `more`: how such a thread gets a larger stack."""
        grows = (
            ""
            if self.array.size is not None
            else f": it grows with `{self.array.bounds.strip('[]').replace('][', '` and `')}`"
        )
        return (
            f"Take the memory of `{self.array.name}` from the heap ({self.array.place}: malloc() and free(), or "
            f"std::vector), or let the caller pass it{grows}. A larger stack only moves the limit ({more})."
        )


def large_local(view: ProcessView) -> LargeLocal | None:
    """Of the innermost function, whose source is here; None where several arrays may be meant, or alloca()."""
    frame, bounds = next(iter(own_frames(view)), None), stack_bounds(view)
    arrays = local_arrays(frame) if frame is not None else []
    stack_bytes, frame_bytes = bounds[1] - bounds[0] if bounds is not None else None, _frame_bytes(view)
    lines = function_lines(frame) if frame is not None and arrays else None
    source = _Source.of(*lines) if lines is not None else None
    if source is None or source.calls_alloca:
        return None
    found = [item for item in arrays if _is_large(item, source, stack_bytes)]
    if len(found) != 1 or (found[0].size is None and _is_small(frame_bytes, stack_bytes)):
        return None
    return LargeLocal(found[0], frame_bytes, _nbytes(found[0]))


def _nbytes(array: LocalArray) -> int | None:
    each = _BYTES.get(array.type.split()[-1])
    return each * array.count if each is not None and array.count is not None else None


class _Source(msgspec.Struct, frozen=True):
    """`head`: of the function, up to its body. `lines`: of the body, by number, without comments; up to `running`."""

    head: str
    lines: dict[int, str]
    running: int

    @classmethod
    def of(cls, lines: list[tuple[int, str]], running: int) -> _Source:
        """From all lines of the function."""
        plain = [(number, _COMMENT.sub("", text)) for number, text in lines]
        opening = next((number for number, text in plain if "{" in text), running)
        head = " ".join(text for number, text in plain if number <= opening)
        return cls(head.partition("{")[0], dict(plain), running)

    @property
    def calls_alloca(self) -> bool:
        """Anywhere, since it may have run in an earlier round of a loop."""
        return any(_ALLOCA.search(text) for text in self.lines.values())

    def is_of_open_block(self, array: LocalArray) -> bool:
        """Whether the block that declares an array has not ended before the running line: its memory is free then."""
        depth, begun = 0, int(array.place.rpartition(":")[2])
        for number in range(begun, self.running):
            for brace in re.findall("[{}]", self.lines.get(number, "")):
                depth += 1 if brace == "{" else -1
                if depth < 0:
                    return False
        return True

    def varies(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a caller decides it: a parameter, or a variable of the function that no literal initialises."""
        if name in seen:
            return False
        if name in self._parameters:
            return True
        declared = re.compile(
            rf"(?:^|[;{{(])\s*(?:[A-Za-z_][\w:]*[\s*&]+)+(?:\w+\s*(?:=[^;,]*)?,\s*)*{name}\s*(?:[;,]|=([^;,]*))"
        )
        found = [match for text in self.lines.values() if (match := declared.search(text)) is not None]
        if len(found) != 1 or "return" in found[0][0]:
            return False
        value = found[0][1]
        if value is None:
            return True
        return _CALL.search(value) is not None or any(self.varies(item, seen | {name}) for item in _NAME.findall(value))

    @property
    def _parameters(self) -> frozenset[str]:
        """The last name of each."""
        given = self.head.partition("(")[2].rpartition(")")[0]
        names = (_NAME.findall(item.partition("=")[0].partition("[")[0]) for item in given.split(","))
        return frozenset(item[-1] for item in names if len(item) > 1)


def _is_large(array: LocalArray, source: _Source, stack_bytes: int | None) -> bool:
    """Of a size that a caller decides, or a large part of the stack."""
    sizes = re.findall(r"\[([^\]]*)\]", array.bounds)
    if array.size is None:
        names = {name for size in sizes for name in _NAME.findall(size)}
        return any(source.varies(name) for name in names) and source.is_of_open_block(array)
    nbytes = _nbytes(array)
    return nbytes is not None and stack_bytes is not None and nbytes * _LEAST_PART >= stack_bytes


def _is_small(frame_bytes: int | None, stack_bytes: int | None) -> bool:
    """Whether the whole frame takes too little of the stack for an array in it to be the reason."""
    return frame_bytes is not None and stack_bytes is not None and frame_bytes * _LEAST_PART < stack_bytes


def _frame_bytes(view: ProcessView) -> int | None:
    """From the frame pointer, which a function with an array of unknown size has, to the stack pointer."""
    crash, bounds = view.crash, stack_bounds(view)
    pointer = crash.registers.get("rbp", crash.registers.get("x29")) if crash is not None else None
    if crash is None or bounds is None or pointer is None or not bounds[0] <= pointer < bounds[1]:
        return None
    return pointer - crash.sp if crash.sp < pointer else None
