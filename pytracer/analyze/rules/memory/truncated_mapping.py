"""truncated-mapping: a mapped file was shorter than its mapping.

What: SIGBUS at an address in a file mapping, in a page wholly behind the end of the file. The file, the offset, what
was mapped, the size at the crash and the size now are named.

Why it happens: the file was truncated or rewritten in place while it was mapped (np.memmap, torch.from_file,
torch.load(mmap=True), safetensors), a download or a writer had not finished, or more was mapped than the file held.

Each rank of a job creates the file by one line, np.memmap(mode="w+") or open(path, "wb"): it truncates what the others
have mapped. That line is named, and the ranks that had run it, as their last lines show.

Where the process died in the very torch.save() or open() that was writing the file, that line is named: by the path in
the source, through variables, attributes and properties, or by the name of the archive that torch was writing. What is
left of the file is incomplete then.

Where the process died inside of `with open(path, "wb")`, or behind such a line of a function of its stack, and that
path is the mapped file's, that line emptied the file: also where the path and the mapped array are attributes of an
object that each line of the program makes of both together.

Where the program itself makes the file shorter, the line that does is named, with the call that led there: its path is
followed through calls, attributes and defaults until it is the mapped file's, and its call can have been after the one
that maps the file.

What to do: find who writes to the file; lines of the program that write or truncate one of its name are named. Write
a new file aside and rename it over the old one: mappings of the old one then stay whole. A file that ranks share is
created by one of them, before the others open it.

How it can be wrong: a line that rewrites the file is known from the source, not that it ran. Where the size at the
crash is not known, the size now is taken, and the file may have changed in between. The rest of the last, partial page
can be read and does not fault.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from pytracer._text import capital, count_words
from pytracer.analyze.address_space.mapped_file import MappedFile, mapped_file, truncation_confidence
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.each_rank import CreatedByEach, created_by_each
from pytracer.analyze.evidence.lifetime.file_mappers import FileMapper, file_mapper
from pytracer.analyze.evidence.lifetime.file_writers import FileWriter, file_writer
from pytracer.analyze.evidence.lifetime.open_rewriter import OpenRewriter, open_rewriter
from pytracer.analyze.evidence.lifetime.rewriters import Rewriter, only_before, rewriter
from pytracer.analyze.evidence.own_code.native_maps import NativeMap, native_map
from pytracer.analyze.evidence.phrases import (
    access_verb,
    fault_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class TruncatedMapping(MemoryFaultRule[MappedFile]):
    """Fires for SIGBUS in a page behind the end of a mapped file."""

    id = "truncated-mapping"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[MappedFile] | None:
        """See MemoryFaultRule."""
        file = mapped_file(view)
        confidence = truncation_confidence(file) if file is not None else None
        if file is None or confidence is None:
            return None
        return Judgement("truncated-mapping", confidence, (view,), file)

    def describe(self, job: JobView, judgement: Judgement[MappedFile]) -> Description:
        """See MemoryFaultRule."""
        view, file = judgement.views[0], judgement.found
        known = _known(view, file, created_by_each(job, view, file.path))
        behind = file.then_bytes if file.then_bytes is not None else file.now_bytes
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} byte {file.offset} of the mapped file {file.path}"
            f"{in_function(view)}: the file {'held' if file.then_bytes is not None else 'now holds'} {_bytes(behind)}"
            f"{_rewritten(file, known)}.",
            [
                fault_evidence(view),
                _extent(file),
                _sizes(file),
                Evidence("mapped-file", "the file has been deleted or replaced since it was mapped", path=file.path)
                if file.deleted
                else None,
                storage_evidence(view) if view.place is not None and view.place.kind == "in-storage" else None,
                python_evidence(view),
            ],
            _advice(file, known),
            [None if file.then_bytes is not None else "the size of the file at the crash"],
            behind=Behind.of([], known.mapper, known.created or known.writer),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        files = [file for view in faults if (file := mapped_file(view)) is not None]
        if any(file.then_bytes is None and file.now_bytes is None for file in files):
            return cannot_decide("the size of the mapped file is known neither at the crash nor now")
        return not_found("no fault address lay behind the end of a mapped file")


_ASIDE = (
    "A file that is mapped must not be shortened: write a new one and rename it over the old one (os.replace()), or "
    "use another name."
)
_OF_TORCH = "/dev/shm/torch_"


class _Known(msgspec.Struct, frozen=True):
    """What the program's source has about the file: the lines that write and map it, or that every rank creates it.

    `before`: the writer runs only before the file is mapped.
    """

    created: CreatedByEach | None
    writer: Rewriter | OpenRewriter | FileWriter | None
    mapper: FileMapper | None
    before: bool
    native: NativeMap | None = None  # what C maps, where Python maps nothing of that name


def _known(view: ProcessView, file: MappedFile, created: CreatedByEach | None) -> _Known:
    writer = _named(view, file)
    by_name = writer if isinstance(writer, FileWriter) and not file.path.startswith(_OF_TORCH) else None
    before = by_name is not None and only_before(view, file.path, by_name.at)
    mapper = file_mapper(view, file.path)
    return _Known(created, writer, mapper, before, native_map(view) if mapper is None else None)


def _advice(file: MappedFile, known: _Known) -> str:
    writer, mapper = known.writer, known.mapper
    if known.created is not None:
        return known.created.advice
    if isinstance(writer, Rewriter):
        return writer.advice
    if isinstance(writer, OpenRewriter):
        return f"{writer.advice}{_lost(file)}"
    if file.path.startswith(_OF_TORCH):
        owner = (
            "torch makes its shared memory with its full size and never shortens it: something else truncated it while "
            "tensors in it lived. To clean up, use os.unlink(), which leaves mappings whole, once its users have ended."
        )
        return f"{writer.words} {owner}" if writer is not None else owner
    held = file.then_bytes if file.then_bytes is not None else file.now_bytes
    if known.native is not None and held is not None and (writer is None or not writer.runs):
        return f"{known.native.advice(file.mapped_end, held)}" + (
            f" {writer.words}" if writer is not None and not known.before else ""
        )
    if writer is not None and known.before:
        return (
            f"{capital(writer.brief)} writes the file only before it is mapped: look for another line or process that "
            f"does, such as a second run of the program. {_ASIDE}"
        )
    if writer is not None:
        read = (
            f" Or read it as a whole: leave out {mapper.option} at {mapper.place}." if mapper and mapper.option else ""
        )
        return f"{writer.words} {_ASIDE}{read}{_left(file, writer)}"
    return (
        "Find out who truncated or rewrote the file while it was mapped, or why it is shorter than expected; "
        "write files aside and rename them."
    )


def _lost(file: MappedFile) -> str:
    """Of a file that the process had emptied; nothing where somebody wrote it since."""
    again = file.now_bytes is not None and file.now_bytes != file.then_bytes
    name = os.path.basename(file.path)
    return "" if again else f" What {name} held is lost: restore it from a copy, or make it again."


def _left(file: MappedFile, writer: FileWriter) -> str:
    """Of a file that the process was writing when it died."""
    again = file.now_bytes is not None and file.now_bytes != file.then_bytes  # somebody wrote it since
    if not writer.runs or writer.begins is not None or again:
        return ""
    perhaps = "probably " if writer.by_archive else ""
    return f" {os.path.basename(file.path)} was {perhaps}left incomplete: do not resume from it, take another copy."


def _named(view: ProcessView, file: MappedFile) -> Rewriter | OpenRewriter | FileWriter | None:
    """The line that writes it, certainly or by its name; of a process that was writing it, that one."""
    alike = file_writer(view, file.path)
    if file.path.startswith(_OF_TORCH) or (alike is not None and alike.runs):
        return alike
    return open_rewriter(view, file.path) or rewriter(view, file.path) or alike  # that on the stack first


def _rewritten(file: MappedFile, known: _Known) -> str:
    """`` , which line 29 (`torch.save(half, path)`) may have written since line 22 mapped it ``."""
    writer, mapper = known.writer, known.mapper
    if known.created is not None:
        return f"; {known.created.brief}"
    if isinstance(writer, (Rewriter, OpenRewriter)):
        return writer.brief
    if writer is None or writer.begins is not None or file.path.startswith(_OF_TORCH):
        return ""
    if writer.runs:
        mapped = f" while {mapper.place} had it mapped" if mapper is not None else ""
        if writer.by_archive:
            return f", which {writer.brief}, whose archive has its name, was probably writing{mapped}"
        return f", which {writer.brief} was writing{mapped}"
    if known.before:
        return ""
    since = f" since {mapper.place} mapped it" if mapper is not None else ""
    return f", which {writer.brief} may have written{since}"


def _bytes(count: int | None) -> str:
    return count_words(count or 0, "byte")


def _extent(file: MappedFile) -> Evidence:
    page = file.offset - file.offset % file.page_bytes
    return Evidence(
        "mapped-file",
        f"the file was mapped up to byte {file.mapped_end}, the page that was touched begins at byte {page}",
        path=file.path,
        limit=file.mapped_end,
        offset_bytes=file.offset,
    )


def _sizes(file: MappedFile) -> Evidence | None:
    then = f"its size was {_bytes(file.then_bytes)} at the crash" if file.then_bytes is not None else None
    now = f"{'it is' if then else 'its size is'} {_bytes(file.now_bytes)} now" if file.now_bytes is not None else None
    words = " and ".join(item for item in (then, now) if item)
    nbytes = file.then_bytes if file.then_bytes is not None else file.now_bytes
    return Evidence("mapped-file", words, path=file.path, nbytes=nbytes) if words else None
