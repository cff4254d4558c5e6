"""Decoded values as parts of the report, one to one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

from pytracer._library_files import is_library_file
from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.tensors.origins import origin_kind
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.decode.types.devices import DEFAULT_POOL
from pytracer.decode.types.journal import HandledException, UncaughtException, Variable
from pytracer.decode.types.snapshot import CallSite, Crash, Mapping, Moment, NativeFrame, PythonFrame, Storage
from pytracer.report import job as r

_SPAN = 4  # line, column, last line, end


class StorageReports:
    """Storages of one process as parts of the report, each with both ends of its life."""

    def __init__(self, space: AddressSpace, clock: ProcessClock) -> None:
        self.space, self.clock = space, clock

    @cached_property
    def _names(self) -> dict[int, str]:
        """The names of threads by id. Ids are reused: the thread recorded first keeps its name."""
        snapshot = self.space.snapshot
        named = [(thread.tid, thread.name) for thread in snapshot.threads]
        if snapshot.crash is not None:
            named.append((snapshot.crash.tid, snapshot.crash.thread_name))
        return dict(reversed(named))

    def of_place(self, place: Place) -> r.StorageReport | None:
        """The storage of a place; None if there is none."""
        storage = place.storage
        if storage is None:
            return None
        born, freed = self.life(storage)
        return r.StorageReport(
            base=hex_addr(storage.base),
            nbytes=storage.nbytes,
            offset_bytes=place.offset_bytes,
            distance_bytes=place.distance_bytes,
            device=storage.device,
            state=storage.state,
            names=list(place.names),
            allocated=None if storage.older else born,
            freed=freed,
            found=place.found,
            earlier=list(place.earlier),
            stream=hex_addr(storage.stream) if storage.stream is not None else None,
            pool=None if storage.pool == DEFAULT_POOL else f"({storage.pool[0]}, {storage.pool[1]})",
            awaited=storage.awaited if storage.device != "cpu" else None,
            origin=origin_kind(storage),
            file=storage.file,
            file_offset=storage.file_offset,
            older=storage.older,
            named=self.space.uses.named.report(storage, place.addr),
            holders=self.space.holders.report(storage),
        )

    def life(self, storage: Storage) -> tuple[r.Origin | None, r.Origin | None]:
        """The allocation and the free of a storage; None for an end that has not come."""
        return (
            self._origin(storage.allocated, storage.allocated_by, storage.allocated_thread),
            self._origin(storage.freed, storage.freed_by, storage.freed_thread),
        )

    def _origin(self, moment: Moment | None, site: CallSite | None, tid: int | None) -> r.Origin | None:
        if moment is None:
            return None
        site = site or CallSite()
        name = self._names.get(tid) if tid is not None else None
        return r.Origin(
            time=self.clock.relative(moment.mono_ns),
            thread=name or (f"thread {tid}" if tid is not None else None),
            thread_name=name or None,
            step=moment.step,
            python=python_frame(site.python) if site.python else None,
            caller=python_frame(site.caller) if site.caller else None,
            now_below=self._now_below(site, tid),
            autograd_node=site.node,
            stack=[python_frame(frame) for frame in site.stack] or None,
        )

    def _now_below(self, site: CallSite, tid: int | None) -> r.PythonFrame | None:
        """The program's line that is in the same call of a library now, where only the library's was recorded."""
        crash = self.space.snapshot.crash
        if crash is None or tid != crash.tid or site.python is None or site.caller is not None:
            return None
        if not is_library_file(site.python.file):
            return None
        frames = crash.python_stack
        at = next((n for n, frame in enumerate(frames) if frame == site.python), len(frames))
        outside = next((frame for frame in frames[at:] if not is_library_file(frame.file)), None)
        return python_frame(outside) if outside is not None else None


def innermost_of_program(stack: Sequence[r.PythonFrame]) -> r.PythonFrame | None:
    """The innermost frame of the user's program, else the innermost one."""
    return next((frame for frame in stack if not is_library_file(frame.file)), next(iter(stack), None))


def bucket_report(place: Place) -> r.Bucket | None:
    """The DDP bucket of a place."""
    bucket = place.bucket
    if bucket is None:
        return None
    return r.Bucket(
        module=bucket.module,
        index=bucket.index,
        generation=bucket.generation,
        nbytes=bucket.nbytes,
        parameters=list(bucket.parameters),
        offset_bytes=bucket.offset_bytes,
        parameter=bucket.parameter,
    )


def unit_report(place: Place) -> r.Fsdp | None:
    """What an FSDP unit used the storage of a place for."""
    unit = place.unit
    if unit is None:
        return None
    return r.Fsdp(
        module=unit.module,
        unit=unit.unit,
        wrapper=unit.wrapper,
        what=unit.what,
        nbytes=unit.nbytes,
        offset_bytes=unit.offset_bytes,
        parameters=list(unit.parameters),
        parameter=unit.parameter,
        parameter_offset_bytes=unit.parameter_offset_bytes,
        shard_of_rank=unit.shard_of_rank,
        state=unit.state,
    )


def exception_report(data: UncaughtException) -> r.ExceptionReport:
    """An exception as its process recorded it."""
    return r.ExceptionReport(
        type=data.type or None,
        message=data.message or "",
        python_stack=[python_frame(frame) for frame in data.python_stack],
        language="Python",
        context=[handled_report(item) for item in data.context] or None,
        remote_traceback=data.remote_traceback,
        variables=variable_reports(data.variables),
        columns=list(data.columns) if len(data.columns) == _SPAN else None,
        near=_near(data) or None,
        outer=_outer(data) or None,
        outermost=[python_frame(frame) for frame in data.outermost] or None,
        frame_count=data.frame_count or None,
        warnings=[r.WarningReport(item.category, item.message, item.file, item.line) for item in data.warnings] or None,
    )


def variable_reports(data: Sequence[Variable]) -> list[r.VariableReport] | None:
    """Variables of a frame."""
    return [r.VariableReport(name=item.name, value=item.value) for item in data] or None


def handled_report(data: HandledException) -> r.HandledExceptionReport:
    """An exception that was being handled."""
    stack = [python_frame(frame) for frame in data.python_stack]
    return r.HandledExceptionReport(
        type=data.type,
        message=data.message,
        python_stack=stack,
        variables=variable_reports(data.variables),
        columns=list(data.columns) if len(data.columns) == _SPAN else None,
        near=_near(data) or None,
        outer=_outer(data) or None,
    )


def _near(data: UncaughtException | HandledException) -> list[r.NearNamesReport]:
    return [r.NearNamesReport(of=item.of, names=list(item.names), count=item.count) for item in data.near]


def _outer(data: UncaughtException | HandledException) -> list[r.OuterFrameReport]:
    return [r.OuterFrameReport(frame=item.frame, variables=variable_reports(item.variables)) for item in data.outer]


def file_size_now(path: str) -> int | None:
    """In bytes; None for a file that is gone, or on another machine."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return None


def mapping_report(crash: Crash, mapping: Mapping | None) -> r.MappingReport | None:
    """The mapping of the fault address, with the size of its file at the crash and now."""
    if mapping is None:
        return None
    return r.MappingReport(
        path=mapping.path or None,
        start=hex_addr(mapping.start),
        end=hex_addr(mapping.end),
        permissions=mapping.permissions,
        file_size=file_size_now(mapping.path) if mapping.path.startswith("/") else None,
        offset=mapping.offset if mapping.path.startswith("/") else None,
        file_size_at_crash=crash.file_nbytes,
        file_room_at_crash=crash.file_room,
    )


def python_frame(frame: PythonFrame) -> r.PythonFrame:
    """One Python frame."""
    return r.PythonFrame(function=frame.function, file=frame.file, line=frame.line)


def native_frame(frame: NativeFrame) -> r.NativeFrame:
    """One native frame; without an image its address replaces the offset."""
    return r.NativeFrame(
        image=frame.image,
        offset=hex_addr(frame.offset) if frame.offset is not None else hex_addr(frame.pc) if not frame.image else None,
        build_id=frame.build_id,
        function=frame.function,
        found=frame.found,
        lines=[r.SourceLine(function=item.function, file=item.file, line=item.line) for item in frame.lines] or None,
    )
