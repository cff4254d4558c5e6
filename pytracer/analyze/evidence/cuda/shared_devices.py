"""Ranks of one host that use the same CUDA device: which they are, the line that allocates there, and who chose it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened, span_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import place_words, short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_DUPLICATE = Pattern(r"Duplicate GPU detected")  # NCCL
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_LONGEST = 60


class SharedDevice(msgspec.Struct, frozen=True):
    """`first`: the program's line with the oldest known allocation there. `chosen`: calls of set_device() in its file.

    `variable`: of the environment, which numbers the ranks of a host.
    """

    device: str
    ranks: tuple[int, ...]
    first: PythonFrame
    text: str | None
    chosen: tuple[tuple[int, str], ...]
    variable: str

    @property
    def subject(self) -> str:
        """For a headline."""
        text = f" (`{shortened(self.text, _LONGEST)}`)" if self.text is not None else ""
        every = "both" if len(self.ranks) == 2 else "all"
        return f"{span_words(self.ranks)} {every} use {self.device}, where {place_words(self.first)}{text} allocates"

    @property
    def advice(self) -> str:
        """Before that line, or instead of what chose the device."""
        call = f'torch.cuda.set_device(int(os.environ["{self.variable}"]))'
        more = "Start no more ranks than the host has GPUs."
        file = short_file(self.first.file or "")
        if self.chosen:
            line, said = self.chosen[0]
            return (
                f"{file}:{line} has `{said}`, and {span_words(self.ranks)} use {self.device} nevertheless: see that it "
                f"gives each rank of a host another device, as {call} does, and runs before {file}:{self.first.line}. "
                f"{more}"
            )
        named = re.search(r"cuda:\d+", self.text or "")
        literal = f', with "cuda" (the current device) in place of {named[0]}' if named is not None else ""
        return f"Call {call} before {file}:{self.first.line}{literal}. {more}"


def shared_device(job: JobView, view: ProcessView) -> SharedDevice | None:
    """Where NCCL refused two ranks on one device, and there is only one on which this rank is not alone."""
    message = view.exception.message if view.exception is not None else None
    if message is None or _DUPLICATE.search(message) is None:
        return None
    snapshot = view.process.snapshot
    devices = {item.device for item in snapshot.segments if item.nbytes}
    shared = [(device, ranks) for device in devices if (ranks := ranks_on_device(job, view, device))]
    first = _first_use(view, f"cuda:{shared[0][0]}") if len(shared) == 1 else None
    if first is None:
        return None
    (device, ranks), text = shared[0], line_text(snapshot, first)
    variable = next((item for item in _LOCAL_RANKS if item in snapshot.environment), _LOCAL_RANKS[0])
    return SharedDevice(f"cuda:{device}", tuple(ranks), first, text, tuple(_choices(view, first)), variable)


def ranks_on_device(job: JobView, view: ProcessView, device: int) -> list[int]:
    """The ranks of its host with memory on that device, where there are several; they must see the same devices."""
    own = view.process.snapshot
    ranks = [
        item.process.rank
        for item in job.views
        if item.process.role == "rank" and item.process.rank is not None
        and on_one_machine(item, view)
        and item.process.snapshot.environment.get(_VISIBLE) == own.environment.get(_VISIBLE)
        and any(segment.device == device and segment.nbytes for segment in item.process.snapshot.segments)
    ]  # fmt: skip
    return sorted(ranks) if view.process.rank in ranks and len(ranks) > 1 else []


def _first_use(view: ProcessView, device: str) -> PythonFrame | None:
    """The line of the program with the oldest known allocation there."""
    found = []
    for item in view.process.snapshot.storages.on_devices():
        frame = item.allocated_by.place
        if item.device == device and frame is not None:
            found.append((item.allocated.epoch, frame))
    own = [(epoch, frame) for epoch, frame in found if not is_library_file(frame.file)]
    return python_frame(min(own, key=lambda entry: entry[0])[1]) if own else None


def _choices(view: ProcessView, frame: PythonFrame) -> Iterator[tuple[int, str]]:
    """Calls of torch.cuda.set_device() in a file."""
    tree = syntax_tree(view.process.snapshot, frame)
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)] if tree is not None else []
    for item in sorted(calls, key=lambda call: call.lineno):
        if called_name(item) == "set_device":
            yield item.lineno, shortened(ast.unparse(item), _LONGEST)
