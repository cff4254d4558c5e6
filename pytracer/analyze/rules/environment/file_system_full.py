"""file-system-full: a write to a mapped file needed a block of a file system that had none left.

What: SIGBUS while writing to a mapping of a file on a disk, inside the file's size, while its file system had no room.
A sparse file (from ftruncate(), np.memmap(mode='w+'), torch.from_file(shared=True)) takes its blocks when they are
first written, so a full disk shows as SIGBUS instead of as ENOSPC.

Why it happens: the disk is full, or other jobs filled it while the file was mapped.

What to do: make room, write elsewhere, or reserve the blocks with os.posix_fallocate(), which raises instead.

How it can be wrong: a failing disk gives the same signal; the kernel's log has its errors. The room is measured a
moment after the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import dirname

from pytracer._printable import shell_command
from pytracer._text import size_words
from pytracer.analyze.address_space.mapped_file import MappedFile, full_disk, mapped_file
from pytracer.analyze.evidence.at_fault import of_mapping
from pytracer.analyze.evidence.phrases import fault_evidence, in_function, python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.evidence import Evidence


class FileSystemFull(MemoryFaultRule[MappedFile]):
    """Fires for SIGBUS of a write inside a file on a disk without room."""

    id = "file-system-full"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[MappedFile] | None:
        """See MemoryFaultRule."""
        file = mapped_file(view)
        if file is None or not full_disk(file, view.fault.access if view.fault else None):
            return None
        return Judgement("disk-full", "likely", (view,), file)

    def describe(self, job: JobView, judgement: Judgement[MappedFile]) -> Description:
        """See MemoryFaultRule."""
        view, file = judgement.views[0], judgement.found
        return Description(
            f"{introduction(judgement.views)} wrote to the mapped file {file.path}{in_function(view)}: its file system "
            "was full.",
            [
                fault_evidence(view),
                Evidence(
                    "file-system",
                    f"its file system had {size_words(file.room_bytes or 0)} free; a page of a sparse file gets its "
                    "block when it is first written",
                    path=file.path,
                    nbytes=file.room_bytes,
                ),
                Evidence(
                    "mapped-file",
                    f"the file was long enough: byte {file.offset} of {file.then_bytes}",
                    path=file.path,
                    offset_bytes=file.offset,
                    nbytes=file.then_bytes,
                ),
                python_evidence(view),
            ],
            f"Make room on the file system that holds the file (`{shell_command('df', '-h', dirname(file.path))}`), or "
            "reserve the file's blocks before mapping it: os.posix_fallocate() raises ENOSPC instead.",
            behind=of_mapping(view, file.path),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no write was refused in a mapped file on a full disk")
