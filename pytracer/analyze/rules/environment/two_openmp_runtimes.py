"""two-openmp-runtimes: more than one OpenMP runtime was loaded.

What: two of libgomp, libiomp5 and libomp, or two different files of one of them, were in the process. It accompanies
a verdict and is none itself: likely to matter only when the crashed thread was in one of them.

Why it happens: wheels bring their own copy along (torch, scikit-learn, OpenCV, MKL). Each runtime keeps its own
threads and thinks that it is alone; a thread of one that calls into the other is foreign to it.

What to do: import torch first; set OMP_NUM_THREADS=1 to see whether the crash goes away; install the packages from
one source.

How it can be wrong: it is common on Linux, and usually harmless.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.native.libraries import OPENMP, Library, frame_in, libraries
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.circumstance import CircumstanceRule
from pytracer.analyze.view import JobView, ProcessView


class _Loaded(msgspec.Struct, frozen=True):
    """The runtimes, and the frame of the crashed thread that was in one of them."""

    runtimes: tuple[Library, ...]
    inside: str | None


class TwoOpenmpRuntimes(CircumstanceRule[_Loaded]):
    """Fires for a crash with more than one OpenMP runtime loaded."""

    id = "two-openmp-runtimes"
    needs = ("crash",)
    absent = "no crashed process had more than one OpenMP runtime loaded"

    def judge(self, view: ProcessView) -> Judgement[_Loaded] | None:
        """See CircumstanceRule."""
        found = _runtimes(view)
        if len(found) < 2:
            return None
        inside = frame_in(view, [item.path for item in found])
        return Judgement("unknown", "likely" if inside else "possible", (view,), _Loaded(tuple(found), inside))

    def describe(self, job: JobView, judgement: Judgement[_Loaded]) -> Description:
        """See CircumstanceRule."""
        found, inside = judgement.found.runtimes, judgement.found.inside
        return Description(
            f"{introduction(judgement.views)} had {len(found)} OpenMP runtimes loaded"
            f"{f', and the crashed thread was in one of them ({inside})' if inside else ''}.",
            [item.evidence for item in found],
            "Set OMP_NUM_THREADS=1 to see whether it goes away; install the packages from one source.",
            [] if inside else ["a connection with the crash: the crashed thread was in none of them"],
        )


def _runtimes(view: ProcessView) -> list[Library]:
    loaded = libraries(view.crash) if view.crash else []
    return list({item.path: item for item in loaded if item.name in OPENMP}.values())
