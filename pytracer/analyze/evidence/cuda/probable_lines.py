"""A line that probably launched what failed, where it isn't certain: with the reason.

A ring keeps the last few hundred records. Of an assertion, one line that is left of them is the likeliest if what was
dropped is over, or if a whole round of the program's loop is there: another line of the loop would be among them.
"""

from __future__ import annotations

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.cuda.assertions import KernelAssertion
from pytracer.analyze.evidence.cuda.launches import Launch, Suspects, pending_launches
from pytracer.analyze.evidence.cuda.own_kernels import OwnKernel
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView

_COPIES = ("copy_", "_to_copy")
_REASON = "the only recorded line whose kernels have that assertion"


class Probable(msgspec.Struct, frozen=True):
    """`reason`: why that one, for the headline."""

    launch: Launch
    reason: str


def probable_launch(
    view: ProcessView, found: Suspects, assertion: KernelAssertion | None, own: OwnKernel | None
) -> Probable | None:
    """None if one launch is known to be it, or none is far likelier than the others."""
    if own is not None:
        return Probable(own.launch, own.reason)
    if found.culprit is not None or assertion is None or len(found.launches) != 1:
        return None
    launch = found.launches[0]
    if launch.python is None or is_library_file(launch.python.file):
        return None
    return Probable(launch, _REASON) if _reaches_back(view, launch) else None


def _reaches_back(view: ProcessView, launch: Launch) -> bool:
    """Whether no other line of the same round was dropped."""
    pending = [item for item in pending_launches(view).launches if item.stream == launch.stream]
    same = [item.mono_ns for item in pending if _site(item) == _site(launch)]
    copies = [item for item in pending if item.operator in _COPIES and item.host_storages and item.storages]
    own = [item for item in copies if item.python is not None and not is_library_file(item.python.file)]
    if any(same[0] < item.mono_ns < same[-1] for item in own):  # of the next batch
        return True
    return any(item.mono_ns < same[0] and _is_waited_for(view, item) for item in own)


def _site(launch: Launch) -> object:
    return launch.name, launch.python, launch.node


def _is_waited_for(view: ProcessView, copy: Launch) -> bool:
    """Whether the host waits for a copy, and so for all before it: one with `non_blocking` need not."""
    text = line_text(view.process.snapshot, copy.python) if copy.within is None else None
    whole = text is not None and text.count("(") == text.count(")")
    return not copy.asynchronous and whole and "non_blocking" not in (text or "")
