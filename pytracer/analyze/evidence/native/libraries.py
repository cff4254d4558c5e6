"""Which libraries a process had loaded, and which of them there were twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import Evidence

# auditwheel renames bundled libraries: libgomp-a34b3233.so.1
_NAME = Pattern(r"(lib[\w+]+?)(?:-[0-9a-f]{6,})?(?:-\d[\d.]*)?\.so(?:\.|$)")
OPENMP = ("libgomp", "libiomp5", "libomp")


class Library(msgspec.Struct, frozen=True):
    """One file. `name` is its name without hash and version: `libgomp`."""

    name: str
    path: str
    build_id: str | None

    @property
    def words(self) -> str:
        """The path, with its build id when that is known."""
        return self.path + (f" (build id {self.build_id[:12]})" if self.build_id else "")

    @property
    def evidence(self) -> Evidence:
        """That it was loaded."""
        return Evidence("library", f"loaded: {self.words}", path=self.path, build_id=self.build_id)


def libraries(crash: Crash) -> list[Library]:
    """The loaded shared libraries, in order of loading; from the memory map where images were not recorded."""
    if crash.images:
        found: Iterable[tuple[str, str | None]] = ((item.path, item.build_id) for item in crash.images)
    else:
        paths = (item.path for item in crash.mappings if "x" in item.permissions and item.path.startswith("/"))
        found = ((path, None) for path in dict.fromkeys(paths))
    result = []
    for path, build_id in found:
        match = _NAME.match(image_name(path))
        if match:
            result.append(Library(match[1], path, build_id))
    return result


def same_name(loaded: Sequence[Library], names: Iterable[str]) -> list[list[Library]]:
    """The libraries of these names that were loaded from more than one file."""
    groups = ([item for item in loaded if item.name == name] for name in names)
    return [group for group in groups if len({item.path for item in group}) > 1]


def frame_in(view: ProcessView, paths: Iterable[str]) -> str | None:
    """What the crashed thread ran in one of these files: the function, else the file's name; None when nothing."""
    wanted = set(paths)
    for frame in own_frames(view):
        if frame.image in wanted:
            return function_words(frame.function) if frame.function else image_name(frame.image)
    return None
