"""What the machine looked like at the crash: memory, images, and what registers point at."""

from __future__ import annotations

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.targets import explain_pointers
from pytracer.analyze.assemble.threads import threads_found
from pytracer.analyze.evidence.native.recursion import find_cycle
from pytracer.analyze.parts import StorageReports, native_frame
from pytracer.analyze.platform.signals import code_name, signal_name
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.decode.types.snapshot import Crash, NativeFrame
from pytracer.report import job as r

_DEEP_FRAMES = 100


def with_machine_state(
    report: r.ProcessReport, crash: Crash, place: Place | None, storages: StorageReports
) -> r.ProcessReport:
    """The report of a process with everything that only a crash leaves behind."""
    return msgspec.structs.replace(
        report,
        abort_text=crash.abort_text,
        threads_found=threads_found(crash),
        threads_total=crash.threads_total if crash.threads_how else None,
        also_crashed=_also_crashed(crash, storages.clock),
        pointers=explain_pointers(crash, place, storages),
        memory_blocks=[
            r.MemoryBlock(
                register=block.register,
                value=hex_addr(block.value),
                addr=hex_addr(block.addr),
                bytes=block.content.hex(),
            )
            for block in crash.memory
        ],
        images=[
            r.Image(path=image.path, start=hex_addr(image.start), end=hex_addr(image.end), build_id=image.build_id)
            for image in crash.images
        ],
        mappings=[
            r.MemoryRange(
                start=hex_addr(item.start),
                end=hex_addr(item.end),
                permissions=item.permissions,
                offset=item.offset,
                path=item.path or None,
            )
            for item in crash.mappings
        ],
    )


def stack_cycle(crash: Crash) -> r.StackCycle | None:
    """The frames that a deep stack repeats; None for stacks that are not deep."""
    if crash.native_total < _DEEP_FRAMES and not crash.native_gap:
        return None
    head = crash.native_stack[: len(crash.native_stack) - crash.native_tail]
    cycle = find_cycle(head, [_key(frame) for frame in head])
    if cycle is None:
        return None
    keys = {_key(frame) for frame in cycle.frames}
    outer = crash.native_stack[len(head) :] if crash.native_tail else head[cycle.start + len(cycle.frames) :]
    after = 0  # frames below the recursion: what started it
    while after < len(outer) and _key(outer[-1 - after]) not in keys:
        after += 1
    return r.StackCycle(
        frames=[native_frame(frame) for frame in cycle.frames],
        first=cycle.start,
        repeats=(crash.native_total - cycle.start - after) // len(cycle.frames),
        depth=crash.native_total,
    )


def _key(frame: NativeFrame) -> object:
    return frame.function or (frame.image, frame.offset)


def _also_crashed(crash: Crash, clock: ProcessClock) -> list[r.AlsoCrashed]:
    return [
        r.AlsoCrashed(
            tid=item.tid,
            signal=signal_name(item.signal),
            code=code_name(item.signal, item.code),
            addr=hex_addr(item.fault_addr),
            pc=hex_addr(item.pc),
            time=clock.relative(item.mono_ns),
        )
        for item in crash.also_crashed
    ]
