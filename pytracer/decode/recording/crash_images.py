"""Program counters of a crash to images: the table of loaded images first, then the memory map."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytracer.decode.types.snapshot import FrameFound, LoadedImage, Mapping, NativeFrame

FOUND: dict[int, FrameFound] = {0: "exact", 1: "unwound", 2: "frame-pointer", 3: "scanned"}
_ADDRESSES = 1 << 64
UNREADABLE = "?"  # a text whose bytes the handler could not read
_MAPS_LINE = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) ([0-9a-f]{1,16}) \S+ \S+ *(.*)")
_BELOW_STACK = 1 << 20  # how far below its stack an overflowing frame may reach


class Places:
    """Finds the image that contains a program counter; one instance serves all stacks of a crash."""

    def __init__(self, images: Sequence[LoadedImage], mappings: Sequence[Mapping]) -> None:
        self.images = images
        self._images = sorted((i for i in images if i.start < i.end), key=lambda i: i.start)
        self._mappings = sorted((m for m in mappings if m.path), key=lambda m: m.start)
        self._image_starts = [i.start for i in self._images]
        self._mapping_starts = [m.start for m in self._mappings]

    def frame(self, pc: int, found: FrameFound, known: LoadedImage | None = None) -> NativeFrame:
        """The frame at `pc`; `known` is the image that the handler itself named."""
        image = known or self._image(pc)
        if image is not None:
            return NativeFrame(pc, image.path, (pc - image.bias) % _ADDRESSES, image.build_id, found)
        mapping = self._mapping(pc)
        if mapping is None:
            return NativeFrame(pc, None, None, None, found)
        offset = pc - mapping.start + mapping.offset
        return NativeFrame(pc, mapping.path, offset, None, found, offset_is_file=True)

    def is_code(self, pc: int) -> bool:
        """Whether an image has its code there, as far as the memory map is known."""
        mapping = self._mapping(pc)
        return self._image(pc) is not None and (mapping is None or "x" in mapping.permissions)

    def _image(self, pc: int) -> LoadedImage | None:
        at = bisect_right(self._image_starts, pc) - 1
        return self._images[at] if at >= 0 and pc < self._images[at].end else None

    def _mapping(self, pc: int) -> Mapping | None:
        at = bisect_right(self._mapping_starts, pc) - 1
        return self._mappings[at] if at >= 0 and pc < self._mappings[at].end else None


def with_names(images: Sequence[LoadedImage], mappings: Sequence[Mapping]) -> tuple[LoadedImage, ...]:
    """As the memory map has them: whole paths of what was loaded by a relative one, such as `ctypes.CDLL("./a.so")`.

    Without those whose name, which the loader keeps in the heap, was overwritten.
    """
    mapped = {item.start: item.path for item in mappings if item.path.startswith("/")}
    kept = (item for item in images if item.path != UNREADABLE or item.start not in mapped)
    return tuple(_with_whole_path(item, mapped.get(item.start)) for item in kept)


def _with_whole_path(image: LoadedImage, mapped: str | None) -> LoadedImage:
    same = mapped is not None and os.path.basename(mapped) == os.path.basename(image.path)
    return replace(image, path=mapped) if mapped is not None and same and image.path[:1] != "/" else image


def parse_maps(lines: Iterable[str]) -> Iterable[Mapping]:
    """Lines of /proc/PID/maps; a line that was cut off is left out."""
    for line in lines:
        match = _MAPS_LINE.fullmatch(line)
        if match:
            yield Mapping(int(match[1], 16), int(match[2], 16), match[3], int(match[4], 16), match[5])


def stack_of(sp: int, mappings: tuple[Mapping, ...]) -> tuple[int, int] | None:
    """The mapping that the stack pointer lies in or, after an overflow, just below."""
    for item in mappings:
        writable = "rw" in item.permissions and (item.path in ("", "[stack]") or item.path.startswith("[anon:"))
        if writable and item.start - _BELOW_STACK <= sp < item.end:
            return item.start, item.end
    return None
