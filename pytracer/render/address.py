"""An address as text: storage or region, names, allocation and free, neighbours and predecessors."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from pytracer._text import count_words, origin_phrase, size_words, time_words
from pytracer.render.frames import place_words, position_words
from pytracer.render.holders import holder_lines
from pytracer.render.wrappers import add_use, cut
from pytracer.report import job as r

_CALLERS = 3
_MISSED = ("past-storage", "before-storage")
_FOUND = {"guessed": " (nearest storage, guessed)", "guard": ", in a guard"}
_OF_OTHERS = ("numpy", "buffer", "dlpack", "blob")


def memory_text(subject: r.ProcessReport, verdict: r.Verdict) -> Text | None:
    """What the fault address was; None if the verdict's evidence is more specific.

    An address below a stack that did not overflow lies there by chance. So does one in freed memory where a number
    that is certainly too large led there: who allocated and freed that has nothing to do with it.
    """
    fault, thread = subject.fault, subject.thread.name if subject.thread else None
    if fault is None:
        return None
    stack = next((item.stack for item in subject.threads or [] if item.crashed), None)
    if fault.kind == "stack-guard" and verdict.class_ != "stack-overflow":
        return None
    if fault.kind == "stack-guard" and stack is not None and stack.low and stack.high:
        size = size_words(int(stack.high, 16) - int(stack.low, 16))
        return Text(f"at the end of this thread's stack of {size}, {stack.low} to {stack.high}")
    if fault.storage is None:
        return _region_text(fault)
    if fault.storage.state == "freed" and _led_by_number(verdict):
        return Text.assemble(_head(fault.storage, fault.kind), ", where the number that is too large leads")
    text = storage_text(fault.storage, fault.bucket, fault.fsdp, fault.kind, thread)
    if fault.kind == "in-storage" and fault.storage.state == "live" and _is_unmapped(fault):
        text.append("\nno memory is mapped there: a tensor claims it that is alive")
    if fault.cuda_graph is not None:
        text.append(f"\n{graph_words(fault.cuda_graph)}")
    for line in (*_operands(fault), *_beside(fault), *_before(fault)):
        text.append(f"\n{line}")
    return text


def _is_unmapped(fault: r.Fault) -> bool:
    """Of memory that is gone under a tensor, or that was never where it was said to be."""
    return fault.region is not None and fault.region.kind == "unmapped"


def _region_text(fault: r.Fault) -> Text | None:
    mapping, region = fault.mapping, fault.region
    if mapping is None or fault.kind == "near-null":
        return None
    if region is not None and region.says and region.kind not in ("anonymous", "file-mapping"):
        return Text(f"{region.says} ({mapping.permissions}){_file_size(mapping)}")
    return Text(f"{mapping.path or 'anonymous memory'} ({mapping.permissions}){_file_size(mapping)}")


def _led_by_number(verdict: r.Verdict) -> bool:
    """Whether it is certain that a value of a tensor, which is larger than it may be, led out of another one."""
    large = (
        item.kind == "tensor" and item.value is not None and item.limit is not None and item.value > item.limit
        for item in verdict.facts or []
    )
    return (verdict.class_, verdict.confidence) == ("out-of-bounds", "certain") and any(large)


def _on_device(storage: r.StorageReport) -> bool:
    return storage.device is not None and storage.device != "cpu"


def _head(storage: r.StorageReport, kind: str | None) -> Text:
    """`freed storage of 60.2 MiB at 0x7fd3c6988040, 0 bytes in`."""
    text = Text().append(f"{storage.state} {'block' if _on_device(storage) else 'storage'}", style="bold")
    return text.append(f" of {size_words(storage.nbytes or 0)} at {storage.base}, {_offset(storage, kind)}")


def storage_text(
    storage: r.StorageReport, bucket: r.Bucket | None, unit: r.Fsdp | None, kind: str | None, thread: str | None
) -> Text:
    """A storage relative to an address, over several lines: distance, names, allocated, freed."""
    text = _head(storage, kind)
    if _on_device(storage):
        text.append(f"\non {storage.device}{_device_words(storage)}")
    elif kind_of_memory := origin_phrase(storage.origin, storage.file):
        text.append(f"\n{kind_of_memory}")
    add_use(text, storage.names or [], bucket, unit)
    for line in holder_lines(storage):
        text.append(f"\n{line}")
    # A tensor was made there of memory that had been allocated elsewhere, or, of a wrong address, never.
    made = "made" if storage.origin in _OF_OTHERS else "allocated"
    for label, origin in ((made, storage.allocated), ("freed", storage.freed)):
        if origin is not None:
            text.append(f"\n{label:<9} ", style="cyan")
            text.append(origin_words(origin, thread))
            below = _callers(origin)
            if below:
                text.append(f"\n{'':<9} called from {', '.join(below)}", style="dim")
    return text


def graph_words(use: r.CudaGraphUse) -> str:
    """Which CUDA graph uses the memory, and how."""
    where = f", captured at {place_words(use.captured_by)}" if use.captured_by else ""
    role = "an input" if use.role == "static-input" else "of the pool"
    replays = f", replayed {count_words(use.replays, 'time')}" if use.replays else ""
    return f"{role} of CUDA graph {use.id}{where}{replays}" + (f"; {use.note}" if use.note else "")


def _device_words(storage: r.StorageReport) -> str:
    stream = "" if storage.stream in (None, "0x0") else f", for stream {storage.stream}"
    pool = f", in pool {storage.pool}" if storage.pool else ""
    return f"{stream}{pool}{', freed but kept until other streams are done with it' if storage.awaited else ''}"


def _callers(origin: r.Origin) -> list[str]:
    """The next frames of a guarded storage's stack, below the one already shown."""
    stack, shown = origin.stack or [], origin.place
    at = next((i for i, frame in enumerate(stack) if frame == shown), len(stack))
    callers = stack[at + 1 : at + 1 + _CALLERS]
    return [f"{(frame.file or '?').rsplit('/', 1)[-1]}:{frame.line} in {frame.function}" for frame in callers]


def _offset(storage: r.StorageReport, kind: str | None) -> str:
    if kind not in _MISSED:
        return f"{storage.offset_bytes} bytes in"
    distance = storage.distance_bytes or 0
    if kind == "before-storage":
        where = f"{_bytes(distance)} before it"
    else:
        where = f"{_bytes(distance - 1)} past its end" if distance > 1 else "right past its end"
    return where + _FOUND.get(storage.found or "", "")


def _bytes(count: int) -> str:
    return count_words(count, "byte") if count < 1 << 20 else size_words(count)


def _operands(fault: r.Fault) -> Iterator[str]:
    """How the address was formed, if an index took part or a register pointed elsewhere than the address."""
    operands = fault.operands or []
    if fault.kind in _MISSED and (len(operands) > 1 or any(item.value != fault.addr for item in operands)):
        yield "; ".join(f"{item.register} {item.says}" for item in operands if item.says)


def _beside(fault: r.Fault) -> Iterator[str]:
    """The storage on the other side of the gap that an out-of-bounds access hit."""
    if fault.kind not in _MISSED or fault.storage is None:
        return
    for item in fault.neighbors or []:
        if item.storage is not None and item.storage.base != fault.storage.base:
            yield neighbor_words(item)


def neighbor_words(item: r.Neighbor) -> str:
    """`live storage of 4096 bytes at 0x7f... (parameter w) begins 48 bytes above`."""
    storage, distance = item.storage or r.StorageReport(), item.distance_bytes or 0
    name = f" ({storage.names[0]})" if storage.names else ""
    what = f"{storage.state} storage of {size_words(storage.nbytes or 0)} at {storage.base}{name}"
    if item.side == "above":
        return f"{what} begins {_bytes(distance)} above"
    return f"{what} ends {_bytes(distance - 1)} below" if distance > 1 else f"{what} ends right below"


def _before(fault: r.Fault) -> Iterator[str]:
    """Earlier owners of the same memory: a stale pointer may be older than the last one."""
    earlier = (fault.storage.earlier if fault.storage else None) or []
    if earlier:
        yield f"before that, the same memory was {cut(earlier, 2)}"
    elif fault.earlier_lives and fault.kind == "in-storage":
        life = fault.earlier_lives[0]
        before = "another tensor has that memory, too:" if life.state == "live" else "before that,"
        yield f"{before} {life_words(life)}"


def life_words(storage: r.StorageReport) -> str:
    """An earlier allocation lifetime in one line."""
    name = f" ({storage.names[0]})" if storage.names else ""
    freed = f", freed at {origin_words(storage.freed, None)}" if storage.freed else ""
    allocated = f", allocated at {origin_words(storage.allocated, None)}" if storage.allocated else ""
    return f"{storage.state} storage of {size_words(storage.nbytes or 0)} at {storage.base}{name}{allocated}{freed}"


def _file_size(mapping: r.MappingReport) -> str:
    """The size of the mapped file at the crash, and now if it differs."""
    then, now = mapping.file_size_at_crash, mapping.file_size
    if then is None:
        return f", the file has {size_words(now)} now" if now is not None else ""
    words = f", the file had {size_words(then)} at the crash"
    return words if now in (None, then) else f"{words} and has {size_words(now or 0)} now"


def origin_words(origin: r.Origin, thread: str | None) -> str:
    """Where and when; the thread only if it is not the one that crashed."""
    parts = []
    outer = origin.place
    if outer is not None:
        parts.append(place_words(outer))
        if origin.caller is not None and origin.python is not None and origin.python != origin.caller:
            parts[0] += f" ({position_words(origin.python)})"
        elif origin.now_below is not None:
            parts[0] += f" (now called from {place_words(origin.now_below)})"
    if origin.autograd_node:
        parts.append(f"autograd node {origin.autograd_node}")
    if not parts:
        parts.append("place not recorded")
    if origin.thread and origin.thread != thread:
        parts.append(f"thread {origin.thread_name}" if origin.thread_name else origin.thread)
    if origin.step is not None:
        parts.append(f"step {origin.step}")
    if origin.time is not None:
        parts.append(f"near {time_words(origin.time)}")
    return ", ".join(parts)
