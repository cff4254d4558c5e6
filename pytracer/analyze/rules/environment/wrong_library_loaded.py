"""wrong-library-loaded: a library that must be there once was loaded twice, or from the wrong place.

What: two different files of libtorch, libc10, libstdc++, libcudart, libcudnn or libnccl were loaded; or one of torch's
own libraries came from outside the torch package that was imported. It accompanies a verdict and is none itself.

Why it happens: LD_LIBRARY_PATH or LD_PRELOAD lead to another installation, an extension was built and linked against
another torch or CUDA, or a conda and a pip package met.

What to do: clear LD_LIBRARY_PATH, or take the named folder out of it; rebuild the extension against the torch in use.

How it can be wrong: two copies can live side by side for as long as no object of one reaches the other.
"""

from __future__ import annotations

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.native.libraries import Library, frame_in, libraries, same_name
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.circumstance import CircumstanceRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_TORCH = ("libtorch", "libtorch_cpu", "libtorch_cuda", "libtorch_python", "libc10", "libc10_cuda", "libshm")
_SINGLE = (*_TORCH, "libstdc++", "libcudart", "libcudnn", "libnccl")
_ANCHOR = "libtorch_python"  # loaded by `import torch` from the package's own folder


class _Wrong(msgspec.Struct, frozen=True):
    """Libraries from elsewhere, those that were loaded twice, all of them, and the crashed thread's frame in one."""

    foreign: list[Library]
    doubled: list[list[Library]]
    suspects: list[Library]
    inside: str | None


class WrongLibraryLoaded(CircumstanceRule[_Wrong]):
    """Fires for a crash with a library twice, or one of torch's from elsewhere."""

    id = "wrong-library-loaded"
    needs = ("crash",)
    absent = "no crashed process had a library twice that must be there once"

    def judge(self, view: ProcessView) -> Judgement[_Wrong] | None:
        """See CircumstanceRule."""
        loaded = libraries(view.crash) if view.crash else []
        foreign, doubled = _foreign(loaded), same_name(loaded, _SINGLE)
        suspects = list(dict.fromkeys([*foreign, *(item for group in doubled for item in group)]))
        if not suspects:
            return None
        inside = frame_in(view, [item.path for item in suspects])
        found = _Wrong(foreign, doubled, suspects, inside)
        return Judgement("unknown", "likely" if foreign or inside else "possible", (view,), found)

    def describe(self, job: JobView, judgement: Judgement[_Wrong]) -> Description:
        """See CircumstanceRule."""
        found = judgement.found
        return Description(
            f"{introduction(judgement.views)} had {_what(found.foreign, found.doubled)}.",
            [
                *(item.evidence for item in found.suspects),
                Evidence(
                    "native-stack", f"the crashed thread was in one of them ({found.inside})", function=found.inside
                )
                if found.inside
                else None,
                *_paths(judgement.views[0], found.suspects),
            ],
            "Take the other folder out of LD_LIBRARY_PATH and LD_PRELOAD, or rebuild the extension that brings it.",
            [] if found.inside else ["a connection with the crash: the crashed thread was in none of them"],
        )


def _foreign(loaded: list[Library]) -> list[Library]:
    """Torch's libraries that lie outside the folder of the torch that was imported."""
    anchors = {_folder(item.path) for item in loaded if item.name == _ANCHOR}
    if len(anchors) != 1:
        return []
    return [item for item in loaded if item.name in _TORCH and _folder(item.path) not in anchors]


def _what(foreign: list[Library], doubled: list[list[Library]]) -> str:
    if foreign:
        names = list_words(list(dict.fromkeys(item.name for item in foreign)))
        return f"{names} loaded from {_folder(foreign[0].path)}, not from the torch that was imported"
    return f"{list_words([group[0].name for group in doubled])} loaded from two different files"


def _paths(view: ProcessView, suspects: list[Library]) -> list[Evidence]:
    """The variables that lead to one of these files."""
    environment = view.process.snapshot.environment
    found = []
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        parts = environment.get(name, "").replace(" ", ":").split(":")
        places = {part.rstrip("/") for part in parts if part}
        if any(item.path in places or _folder(item.path) in places for item in suspects):
            words = f"{name} leads there: {environment[name]}"
            found.append(Evidence("environment", words, variable=name, text=environment[name]))
    return found


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]
