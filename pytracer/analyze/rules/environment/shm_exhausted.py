"""shm-exhausted: no memory was left behind a shared-memory mapping.

What: SIGBUS in a mapping of a file that lives in memory (/dev/shm, memfd, any tmpfs, huge pages), inside the file's
size, while its file system had no room. Such files take their pages when they are first touched, not when they are
made.

Why it happens: containers get 64 MB of /dev/shm by default; DataLoader workers, NCCL and other libraries
put tensors and buffers there. torch itself reserves its pages and raises "No space left on device" instead.

What to do: give the container more (`docker run --shm-size=8g` or `--ipc=host`; an emptyDir of medium Memory in
Kubernetes), use fewer workers, a smaller prefetch_factor or smaller batches. The sharing strategy "file_system" does
not help: its files are in /dev/shm, too. A tmpfs that is mounted elsewhere has its own size: make it larger, or keep
the file on a disk. The class is then `disk-full`.

How it can be wrong: the free space is measured a moment after the fault; memory may have been released by then. A limit
of the memory cgroup can refuse a page, too, with space left on the file system.
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import dirname

from pytracer._printable import shell_command
from pytracer._text import size_words
from pytracer.analyze.address_space.mapped_file import MappedFile, mapped_file, room_confidence
from pytracer.analyze.evidence.at_fault import of_mapping
from pytracer.analyze.evidence.phrases import (
    access_verb,
    fault_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_ADVICE = (
    "Give the container more shared memory (docker run --shm-size or --ipc=host), or use fewer DataLoader workers, a "
    "smaller prefetch_factor or smaller batches."
)
_LIMITED_BY_MOUNT = (
    "Make room on the tmpfs that holds the file (`{}`), mount it with a larger size=, or keep the file on a disk."
)
_HUGE_ADVICE = "Reserve more huge pages (vm.nr_hugepages), or use ordinary ones."


class ShmExhausted(MemoryFaultRule[MappedFile]):
    """Fires for SIGBUS inside a file in memory whose file system is full."""

    id = "shm-exhausted"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[MappedFile] | None:
        """See MemoryFaultRule."""
        file = mapped_file(view)
        confidence = room_confidence(file) if file is not None else None
        if file is None or confidence is None:
            return None
        in_shm = file.is_from_shm or file.is_huge
        return Judgement("shm-exhausted" if in_shm else "disk-full", confidence, (view,), file)

    def describe(self, job: JobView, judgement: Judgement[MappedFile]) -> Description:
        """See MemoryFaultRule."""
        view, file = judgement.views[0], judgement.found
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} {file.path}{in_function(view)}: "
            f"{_nothing_left(file)}.",
            [
                fault_evidence(view),
                _room(file),
                _size(file),
                storage_evidence(view) if view.place is not None and view.place.kind == "in-storage" else None,
                python_evidence(view),
            ],
            _advice(file),
            [
                None if file.then_bytes is not None else "the size of the file at the crash",
                None if file.room_bytes is not None else "how much room its file system had",
            ],
            behind=of_mapping(view, file.path),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no fault address lay in a file in memory whose file system was full")


def _nothing_left(file: MappedFile) -> str:
    if file.is_huge:
        return "no huge pages were left behind it"
    return "no shared memory was left behind it" if file.is_from_shm else "the tmpfs that holds it was full"


def _advice(file: MappedFile) -> str:
    if file.is_huge:
        return _HUGE_ADVICE
    return _ADVICE if file.is_from_shm else _LIMITED_BY_MOUNT.format(shell_command("df", "-h", dirname(file.path)))


def _room(file: MappedFile) -> Evidence | None:
    if file.room_bytes is None:
        return None
    words = f"its file system had {size_words(file.room_bytes)} free"
    return Evidence("file-system", words, path=file.path, nbytes=file.room_bytes)


def _size(file: MappedFile) -> Evidence | None:
    if file.then_bytes is None:
        return None
    words = f"the file was long enough: byte {file.offset} of {file.then_bytes}"
    return Evidence("mapped-file", words, path=file.path, offset_bytes=file.offset, nbytes=file.then_bytes)
