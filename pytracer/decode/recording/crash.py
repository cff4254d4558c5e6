"""The crash section: what the handler wrote, step by step, before the process died."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import ArgumentHow, CrashState, HolderKind, Region, Step
from pytracer.decode.recording.crash_images import FOUND, Places, parse_maps, stack_of, with_names
from pytracer.decode.recording.crash_threads import in_order, read_threads, threads_how
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.held_arrays import split_arrays
from pytracer.decode.recording.held_values import VALUE_KINDS, value_text
from pytracer.decode.recording.journal import NO_SEQUENCE_NR, Journal, text_of_kind
from pytracer.decode.recording.storages import Storages
from pytracer.decode.recording.torch_numbers import DEVICES, DTYPES
from pytracer.decode.symbols.demangle import node_name
from pytracer.decode.symbols.line_table import line_of
from pytracer.decode.types.journal import HandledException
from pytracer.decode.types.snapshot import (
    AlsoCrashed,
    Argument,
    ArgumentHowName,
    Crash,
    HeldNumber,
    HeldValue,
    HitKind,
    Holder,
    HolderKindName,
    LoadedImage,
    Mapping,
    MemoryBlock,
    NativeFrame,
    Overrun,
    PythonFrame,
    StorageHit,
    Unmapping,
)

_OVERRUNS = {7: (True, False), 8: (False, False), 9: (True, True), 10: (False, True)}  # kind: (live, before)
_POSITIONS: dict[int, HitKind] = {1: "covering", 2: "below", 3: "above", 4: "covering", 5: "below", 6: "above"}
_LAST_LIVE_HIT = 3
_HOLDERS: dict[int, HolderKindName] = {HolderKind.LOCAL: "local", HolderKind.CELL: "cell", HolderKind.GLOBAL: "global"}
_HOW: dict[int, ArgumentHowName] = {
    ArgumentHow.IMPL: "impl",
    ArgumentHow.REFERENCE: "reference",
    ArgumentHow.CAPTURED: "captured",
    ArgumentHow.HELD: "held",
}
_UNREADABLE = _SATURATED = 0xFFFFFFFF
_HAS_OFFSETS = 12  # minor version: Holder.distance of variables
_INFINITE = 1 << 31  # of Argument.not_numbers
_MOST_ARGUMENTS = 64
_NOT_MAPPED = (11, 1)  # SIGSEGV, SEGV_MAPERR
_RECORDING = ".blackbox"
_UNMAPPED_PAGE = 4096  # of CRASH.unmapped_pages, whatever the kernel's are
_UNKNOWN = (1 << 64) - 1
_LONGEST_PATH, _LONGEST_TEXT = 4096, 16384
_TABLE_BYTES = 8 << 20  # of line tables in all: they are walked byte by byte, and may be the same one each time
_X86_64 = (  # order of gregset_t in sys/ucontext.h; the rest of the set is written by the kernel for itself
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp"),
    *("rip", "eflags", "csgsfs", "err", "trapno", "oldmask", "cr2"),
)
_AARCH64 = [*(f"x{i}" for i in range(31)), "sp", "pc", "pstate"]


class CrashReader:
    """Decodes the crash section of a recording."""

    def __init__(self, box: BoxFile, storages: Storages, journal: Journal) -> None:
        self._box, self._storages, self._journal = box, storages, journal
        self._arena = box.content(box.region(Region.ARENA))
        self._head = decode(raw.CrashHeader, bytes(schema.CRASH_HEADER.nbytes))  # until `read`
        self._table_bytes_left = _TABLE_BYTES

    @property
    def state(self) -> CrashState | None:
        """What the section is about; LIVE and EXIT: nothing crashed. None: of a newer version."""
        known = self._head.state in CrashState.__members__.values()
        return CrashState(self._head.state) if known else None

    @property
    def device_sequence(self) -> int | None:
        """Number of the last event of the devices' allocators before the crash; None: nothing crashed for good."""
        crashed = self.state in (CrashState.CLAIMED, CrashState.COMPLETE, CrashState.CHAINED)
        return self._head.device_sequence if crashed else None

    def read(self) -> Crash | None:
        """The crash or, depending on `state`, a running or ending process; None if nothing was written."""
        extent = self._box.region(Region.CRASH, schema.CRASH_HEADER.nbytes)
        if extent is None:
            return None
        if extent.item_count == 0:
            if extent.declared_count:
                self._box.note(extent.offset, "the crash section is cut off")
            return None
        head = self._head = decode(raw.CrashHeader, self._box.data, extent.offset)
        if head.state == CrashState.NONE:
            return None
        mappings = self._mappings()
        images = tuple(self._images())
        named = with_names(images, mappings)
        places = Places(named, mappings)
        frames = self._python_frames()
        threads = self._python_threads(frames)
        memory = tuple(self._memory())
        numbers, arrays = split_arrays(self._numbers(threads))
        others, _ = split_arrays(self._numbers(threads, own=False))
        node = head.node_name if head.node_found else None
        shown = head.native_count + head.native_tail
        return Crash(
            complete=head.state >= CrashState.COMPLETE,
            repaired=head.state == CrashState.REPAIRED,
            tid=head.tid,
            thread_name=head.thread_name,
            signal=head.signal,
            code=head.code,
            fault_addr=head.fault_addr,
            sender_pid=head.sender_pid or None if self._sent else None,
            mono_ns=head.mono_ns,
            registers=dict(zip(self._register_names, head.registers, strict=False)),
            pc=head.pc,
            sp=head.sp,
            error_code=None if head.error_code == _UNKNOWN else head.error_code,
            stack=(head.stack_low, head.stack_high) if head.stack_high else stack_of(head.sp, mappings),
            code_bytes=head.code_bytes[: head.code_nbytes],
            node=node if node is None or head.node_is_python else node_name(node),
            node_sequence_nr=head.node_sequence_nr if node is not None and head.node_sequence_nr >= 0 else None,
            python_matched=bool(head.python_matched),
            python_stack=self._own_stack(threads),
            python_threads=threads,
            handled=self._handled(frames),
            native_stack=tuple(self._native(images, places)),
            native_total=head.native_total,
            native_gap=max(0, head.native_total - shown),
            native_tail=head.native_tail,
            mappings=mappings,
            hits=tuple(self._hits()),
            overruns=tuple(self._overruns()),
            unmapping=self._unmapping(),
            also_crashed=tuple(self._also()),
            steps_done=_steps(head.steps_done),
            steps_faulted=_steps(head.steps_faulted),
            steps_late=_steps(head.steps_late),
            step_ns={s.name: head.step_end_ns[s] for s in Step if head.step_end_ns[s]},
            abort_text=self._utf8("abort_text").rstrip() or None,
            sender_command=self._sender(),
            **self._fault_file(),
            memory=memory,
            images=named,
            code_pointers=tuple(self._code_pointers(memory, places)),
            threads=tuple(read_threads(self._box, head, places)),
            threads_how=threads_how(head),
            threads_total=head.threads_total,
            helper_error=head.helper_error or None,
            holders=tuple(self._holders(threads)),
            numbers=numbers,
            other_numbers=others,
            arrays=arrays,
            values=tuple(self._values(threads)),
            holders_truncated=bool(head.holders_truncated),
            arguments=tuple(self._arguments()),
            arguments_truncated=bool(head.arguments_truncated),
        )

    @property
    def _register_names(self) -> Sequence[str]:
        return _AARCH64 if self._box.header.arch == 2 else _X86_64

    @property
    def _sent(self) -> bool:
        """Whether a process sent the signal, by sigaction(2): SI_USER, SI_QUEUE, SI_TKILL and others."""
        return bool(self._head.code <= 0)

    def _sender(self) -> tuple[str, ...]:
        text = self._utf8("sender_text").rstrip("\0")
        return tuple(text.split("\0")) if text and self._sent else ()

    def _utf8(self, field: str) -> str:
        """A text of the header: its offset in ARENA and its size are fields of it."""
        nbytes = min(getattr(self._head, f"{field}_nbytes"), _LONGEST_TEXT)
        return self._bytes(getattr(self._head, field), nbytes).decode("utf-8", "replace")

    def _text(self, offset: int, nbytes: int, kind: int = 1) -> str:
        return text_of_kind(self._bytes(offset, min(nbytes, _LONGEST_TEXT)), kind) or "?"

    def _bytes(self, offset: int, nbytes: int) -> bytes:
        return b"" if offset == _UNREADABLE else self._arena[offset : offset + nbytes]

    def _unmapping(self) -> Unmapping | None:
        """What write_unmapping() found."""
        head = self._head
        if not head.unmapped_addr:
            return None
        return Unmapping(
            addr=head.unmapped_addr,
            nbytes=head.unmapped_pages * _UNMAPPED_PAGE,
            mono_ns=head.unmapped_ns,
            tid=head.unmapped_tid,
            caller=head.unmapped_by,
            stack=self._journal.site(head.unmapped_stack, NO_SEQUENCE_NR).stack,
        )

    # Python

    def _python_frames(self) -> list[PythonFrame]:
        count = self._head.python_frame_count
        return [self._frame(f) for f in self._box.items(Region.PYTHON_FRAMES, raw.PythonFrame, count)]

    def _handled(self, frames: Sequence[PythonFrame]) -> HandledException | None:
        """What the crashed thread, or else the main one, was handling."""
        head = self._head
        if not head.handled_how:
            return None
        first = head.handled_first_frame
        message = self._bytes(head.handled_message, min(head.handled_message_nbytes, _LONGEST_TEXT))
        return HandledException(
            type=self._text(head.handled_type, head.handled_type_nbytes),
            message=text_of_kind(message, head.handled_message_kind) or None,
            python_stack=tuple(frames[first : first + head.handled_frame_count]),
        )

    def _python_threads(self, frames: Sequence[PythonFrame]) -> tuple[tuple[int, tuple[PythonFrame, ...]], ...]:
        threads = []
        for thread in self._box.items(Region.PYTHON_THREADS, raw.PythonThread, self._head.python_thread_count):
            first = thread.first_frame
            threads.append((thread.pthread, tuple(frames[first : first + thread.frame_count])))
        return tuple(threads)

    def _frame(self, f: raw.PythonFrame) -> PythonFrame:
        table = self._bytes(f.table, f.table_nbytes)
        self._table_bytes_left -= len(table)
        if self._table_bytes_left < 0:
            table = b""
        minor = self._box.header.python_minor
        return PythonFrame(
            function=self._text(f.name, f.name_nbytes, f.name_kind),
            file=self._text(f.file, f.file_nbytes, f.file_kind),
            line=line_of(table, minor, f.first_line, f.offset) if table else None,
        )

    def _own_stack(self, threads: tuple[tuple[int, tuple[PythonFrame, ...]], ...]) -> tuple[PythonFrame, ...]:
        if self._head.python_matched and threads:
            return threads[0][1]
        return next((frames for pthread, frames in threads if pthread == self._head.pthread), ())

    # Native

    def _images(self) -> Iterable[LoadedImage]:
        for image in self._box.items(Region.IMAGES, raw.Image, self._head.image_count):
            build_id = image.build_id[: image.build_id_nbytes].hex() or None
            path = self._bytes(image.path, min(image.path_nbytes, _LONGEST_PATH)).decode("utf-8", "replace")
            yield LoadedImage(path or "?", image.start, image.end, image.bias, build_id)

    def _native(self, images: tuple[LoadedImage, ...], places: Places) -> Iterable[NativeFrame]:
        for item in self._native_items():
            number, found = item.image, FOUND.get(item.found, "unknown")
            known = images[number - 1] if 0 < number <= len(images) else None
            yield places.frame(item.pc, found, known if known in places.images else None)

    def _native_items(self) -> list[raw.NativeFrame]:
        """Frames innermost first: the head, then what is left of the tail, which is a ring."""
        head, limit, ring = self._head, schema.NATIVE_HEAD_FRAMES, schema.NATIVE_TAIL_FRAMES
        if not head.native_tail:
            return list(self._box.items(Region.NATIVE_FRAMES, raw.NativeFrame, head.native_count))
        items = list(self._box.items(Region.NATIVE_FRAMES, raw.NativeFrame, limit + min(head.native_tail, ring)))
        return items[: min(limit, head.native_count)] + in_order(items[limit:], head.native_total - limit, ring)

    def _mappings(self) -> tuple[Mapping, ...]:
        """Those at the fault: a recording that is made after it, by the handler, may take the hole that it was in."""
        head, content = self._head, self._box.content(self._box.region(Region.MAPS))
        found = parse_maps(content[: head.maps_used].decode("utf-8", "replace").splitlines())
        hole = head.fault_addr if (head.signal, head.code) == _NOT_MAPPED else None
        return tuple(
            item
            for item in found
            if hole is None or not item.start <= hole < item.end or not item.path.endswith(_RECORDING)
        )

    # Memory

    def _fault_file(self) -> dict[str, int | None]:
        """The results of the step FAULT_FILE; before that step the fields are zero, which means nothing."""
        head, fields = self._head, ("file_nbytes", "file_room", "file_system")
        done = head.steps_done >> Step.FAULT_FILE & 1
        return {name: value if done and (value := getattr(head, name)) != _UNKNOWN else None for name in fields}

    def _memory(self) -> Iterable[MemoryBlock]:
        names = self._register_names
        for item in self._box.items(Region.MEMORY, raw.MemoryBlock, self._head.memory_count):
            index, content = item.register_index, self._bytes(item.bytes, item.nbytes)
            if content:
                name = names[index] if index < len(names) else f"register {index}"
                yield MemoryBlock(name, item.value, item.addr, content)

    def _code_pointers(self, memory: Sequence[MemoryBlock], places: Places) -> Iterable[NativeFrame]:
        """Return addresses among them show the path even if the stack could not be unwound."""
        values = list(self._head.registers)
        for block in memory:
            if block.register in ("rsp", "sp"):
                start = -block.addr % 8
                words = block.content[start : start + (len(block.content) - start) // 8 * 8]
                values += struct.unpack(f"<{len(words) // 8}Q", words)
        for value in dict.fromkeys(values):
            if places.is_code(value):
                yield places.frame(value, "scanned")

    # Storages and other threads

    def _hits(self) -> Iterable[StorageHit]:
        for hit in self._box.items(Region.STORAGE_HITS, raw.StorageHit, self._head.hit_count):
            if hit.kind in _POSITIONS:
                storage = self._storages.hit(hit.lifetime, live=hit.kind <= _LAST_LIVE_HIT)
                yield StorageHit(_POSITIONS[hit.kind], storage)

    def _overruns(self) -> Iterable[Overrun]:
        for hit in self._box.items(Region.STORAGE_HITS, raw.StorageHit, self._head.hit_count):
            if hit.kind in _OVERRUNS:
                live, before = _OVERRUNS[hit.kind]
                yield Overrun(self._storages.hit(hit.lifetime, live=live), hit.word, before)

    def _holders(self, threads: tuple[tuple[int, tuple[PythonFrame, ...]], ...]) -> Iterable[Holder]:
        frames = [(pthread, frame) for pthread, stack in threads for frame in stack]
        own = len(threads[0][1]) if threads and self._head.python_matched else 0
        for item in self._box.items(Region.HOLDERS, raw.Holder, self._head.holder_count):
            text = self._text(item.text, item.text_nbytes)
            if item.kind == HolderKind.SAVED:
                yield Holder("saved", text if item.frame else node_name(text), item.base, distance=item.distance)
            elif item.kind == HolderKind.NUMBER:
                continue
            elif item.kind in _HOLDERS and item.frame < len(frames):
                pthread, frame = frames[item.frame]
                kind, is_own, offset = _HOLDERS[item.kind], item.frame < own, self._offset(item)
                yield Holder(kind, text, item.base, frame, is_own, pthread, elements=item.elements, offset=offset)

    def _offset(self, item: raw.Holder) -> int | None:
        """Older handlers kept the address of a tensor that begins where its storage does, and no other."""
        if self._box.header.minor >= _HAS_OFFSETS:
            return item.distance if item.distance < _SATURATED else None
        return 0 if item.addr or not item.base else None

    def _numbers(
        self, threads: tuple[tuple[int, tuple[PythonFrame, ...]], ...], *, own: bool = True
    ) -> Iterable[HeldNumber]:
        """Of the crashed thread; else of the others, the depth among the frames of each."""
        matched = bool(threads and self._head.python_matched)
        stacks = [stack for _, stack in threads]
        frames = [
            (at == 0 and matched, depth, frame) for at, stack in enumerate(stacks) for depth, frame in enumerate(stack)
        ]
        for item in self._box.items(Region.HOLDERS, raw.Holder, self._head.holder_count):
            if item.kind == HolderKind.NUMBER and item.frame < len(frames):
                crashed, depth, frame = frames[item.frame]
                if crashed is own:
                    value = item.addr - (1 << 64) if item.addr >> 63 else item.addr
                    yield HeldNumber(self._text(item.text, item.text_nbytes), value, frame, depth)

    def _values(self, threads: tuple[tuple[int, tuple[PythonFrame, ...]], ...]) -> Iterable[HeldValue]:
        own = len(threads[0][1]) if threads and self._head.python_matched else 0
        for item in self._box.items(Region.HOLDERS, raw.Holder, self._head.holder_count):
            if item.kind in VALUE_KINDS and item.frame < own:
                text = value_text(item.kind, item.addr, item.distance)
                if text is not None:
                    yield HeldValue(self._text(item.text, item.text_nbytes), text, item.frame)

    def _arguments(self) -> Iterable[Argument]:
        names, frames = self._register_names, self._head.native_count
        count = min(self._head.argument_count, _MOST_ARGUMENTS)
        for item in self._box.items(Region.ARGUMENTS, raw.Argument, count):
            if item.how not in _HOW:
                continue
            yield Argument(
                impl=item.impl,
                base=item.base,
                elements=item.elements,
                offset=item.offset,
                sizes=item.sizes[: min(item.dimensions, len(item.sizes))],
                dimensions=item.dimensions,
                dtype=None if item.undefined else DTYPES.get(item.dtype),
                device=DEVICES.get(item.device),
                minimum=item.minimum if item.values else None,
                maximum=item.maximum if item.values else None,
                frame=item.frame if item.frame < frames else None,
                outer_frame=item.outer_frame if item.outer_frame < frames else None,
                register=names[item.register_index] if item.register_index < len(names) else None,
                how=_HOW[item.how],
                undefined=bool(item.undefined),
                strides=item.strides[: min(item.dimensions, len(item.strides))],
                nans=(item.not_numbers & ~_INFINITE) - 1 if item.not_numbers else None,
                infinite=bool(item.not_numbers & _INFINITE) if item.not_numbers else None,
            )

    def _also(self) -> Iterable[AlsoCrashed]:
        for a in self._box.items(Region.ALSO_CRASHED, raw.AlsoCrashed, self._head.also_crashed):
            if a.published:
                yield AlsoCrashed(a.tid, a.signal, a.code, a.pc, a.fault_addr, a.mono_ns)


def _steps(bits: int) -> tuple[str, ...]:
    return tuple(s.name for s in Step if bits >> s & 1)
