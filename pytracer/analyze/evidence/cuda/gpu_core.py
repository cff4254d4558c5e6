"""Core dumps of devices: the process of each, and what its registers and parameters point at.

No core dump contains the accessed address. `gpu_access` has it if it can be computed. The parameters of the kernel are
the tensors that it worked on: pointers into memory of torch's allocator are reported, with the place where they were
found.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import msgspec

from pytracer._text import count_words, function_words, hex_addr, list_words
from pytracer.analyze.address_space.device_memory import device_words, made_words
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError
from pytracer.analyze.evidence.cuda.gpu_access import (
    FOUND,
    DeviceAccess,
    access_words,
    explaining_access,
    headline_words,
)
from pytracer.analyze.evidence.phrases import allocation_evidence, free_evidence
from pytracer.analyze.platform.signals import SIGABRT
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.devices import TRAP, GpuCore, GpuException
from pytracer.decode.types.snapshot import Job, Process
from pytracer.report import job as r

_SHOWN = 4
_TRAP_ERROR = "unspecified launch failure"  # as CUDA calls it where no dump is written
_DRIVER_THREAD = "cuda-EvtHandlr"


class FailedLaunch(msgspec.Struct, frozen=True):
    """What a kernel died of. `access`: the one that explains it, if that could be computed.

    `storages`: start addresses of the device memory that its parameters point to.
    """

    exception: GpuException
    access: DeviceAccess | None
    storages: tuple[int, ...]

    @property
    def kernel(self) -> str | None:
        """As a short text; None if the dump has no image around it."""
        return function_words(self.exception.kernel) if self.exception.kernel else None

    @property
    def is_trap(self) -> bool:
        """Whether the kernel ended itself: `__trap()`, or a failed assertion."""
        return self.exception.code == TRAP

    @property
    def line(self) -> str | None:
        """`scale.py:8`, the line of the kernel's source, if it was compiled with lines."""
        return _line_words(self.exception)

    @property
    def words(self) -> str:
        """` by kernel gather4, which read 16 bytes at an address that is not a multiple of 16`; "" without a kernel."""
        if self.kernel is None:
            return ""
        if self.is_trap:
            return f" by kernel {self.kernel}, which ended itself by a trap"
        return f" by kernel {self.kernel}" + (f", {headline_words(self.access)}" if self.access else "")


def core_of(job: Job, process: Process) -> GpuCore | None:
    """The dump that carries the pid and host of a process; the newest exec of a pid wrote it last."""
    box = process.snapshot
    found = [core for core in job.gpu_cores if core.pid == box.pid and core.host in (None, box.host)]
    return found[-1] if found else None


def gpu_core_report(job: Job, view: ProcessView) -> r.GpuCoreReport | None:
    """As plain data."""
    core = core_of(job, view.process)
    if core is None:
        return None
    return r.GpuCoreReport(
        file=core.path,
        device=core.device,
        problem=core.problem,
        exceptions=[_exception(view.space, item) for item in core.exceptions],
    )


def core_evidence(job: JobView, view: ProcessView, failed: FailedLaunch | None) -> list[r.Evidence]:
    """What the dump has, for a finding. `failed`: see failed_launch()."""
    core = core_of(job.job, view.process)
    if core is None:
        return []
    said = [_evidence(core, item) for item in core.exceptions[:2]]
    if failed is not None:
        item = failed.exception
        said += _access_evidence(view, core, failed)
        pointed = [f"{how} {words}" for how, _, words in pointers(view.space, item)]
        if pointed:
            words = f"of that thread and kernel, {list_words(pointed, _SHOWN)}"
            said.append(r.Evidence("gpu-core", words, path=core.path, function=item.kernel, count=len(pointed)))
    if core.problem:
        words = f"the device's core dump {os.path.basename(core.path)}: {core.problem}"
        said.append(r.Evidence("gpu-core", words, path=core.path, text=core.problem))
    return said


def core_error(job: JobView, view: ProcessView) -> CudaError | None:
    """The driver ends a process by abort() after the dump, on a thread of its own and without another reason."""
    core, crash = core_of(job.job, view.process), view.crash
    if crash is None or crash.signal != SIGABRT:
        return None
    if core is not None and core.exceptions:
        first = core.exceptions[0]
        return CudaError(_TRAP_ERROR if first.code == TRAP else first.name, sticky=True)
    wanted = any(launcher.gpu_core is not None for launcher in job.job.launchers)
    if wanted and crash.thread_name.startswith(_DRIVER_THREAD):  # the dump is not there, or damaged
        return CudaError("a kernel failed", sticky=True)
    return None


def failed_launch(job: JobView, view: ProcessView) -> FailedLaunch | None:
    """The first exception of the process's dump; None if no dump has one."""
    core = core_of(job.job, view.process)
    if core is None or not core.exceptions:
        return None
    first = core.exceptions[0]
    return FailedLaunch(first, explaining_access(view.space, first), _parameter_storages(view.space, first))


def _parameter_storages(space: AddressSpace, item: GpuException) -> tuple[int, ...]:
    places = [space.describe(addr) for _, addr in _parameter_words(item.parameters)]
    return tuple(p.storage.base for p in places if p.kind == "device-memory" and p.storage is not None)


def pointers(space: AddressSpace, item: GpuException) -> list[tuple[str, int, str]]:
    """What points into memory of the devices: "register R4" or "parameter at 0x10", address, what lies there."""
    parameters = _targets(space, _parameter_words(item.parameters))
    known = {addr for _, addr, _ in parameters}
    registers = _targets(space, _register_pairs(item.registers))
    return [*parameters, *(target for target in registers if target[1] not in known)]


def _targets(space: AddressSpace, values: Iterator[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Those that point into a block of torch's, each address once."""
    found: dict[int, tuple[str, int, str]] = {}
    for how, addr in values:
        place = space.describe(addr)
        words = device_words(place) if place.kind == "device-memory" and place.storage is not None else None
        if words is not None and place.storage is not None:
            found.setdefault(addr, (how, addr, f"points {words}{made_words(place.storage)}"))
    return list(found.values())


def _register_pairs(registers: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """An address takes two registers, of which the first has an even number."""
    for number in range(0, len(registers) - 1, 2):
        yield f"register R{number}", registers[number] | registers[number + 1] << 32


def _parameter_words(parameters: bytes) -> Iterator[tuple[str, int]]:
    for offset in range(0, len(parameters) - 7, 8):
        yield f"parameter at {offset:#x}", struct.unpack_from("<Q", parameters, offset)[0]


def _sentence(item: GpuException) -> str:
    kernel = function_words(item.kernel) if item.kernel else "a kernel without a name"
    offset = f"+{item.offset:#x}" if item.offset is not None else ""
    inside = (
        f" in {function_words(item.function)}{offset}" if item.function and item.function != item.kernel else offset
    )
    line = _line_words(item)
    at = f"at {line} ({hex_addr(item.pc)})" if line else f"at {hex_addr(item.pc)}"
    where = at if item.pc_exact else f"before {hex_addr(item.pc)}, where the thread was stopped"
    met = "ended itself by a trap (`__trap()` or a failed assertion)" if item.code == TRAP else f'met "{item.name}"'
    threads = "whose warps had ended"
    if item.block is not None:
        threads = f"in {count_words(item.warps, 'warp')}; first block {item.block}, thread {item.thread}"
    return f"the device's core dump: kernel {kernel}{inside} {met} {where}, {threads}"


def _line_words(item: GpuException) -> str | None:
    return f"{os.path.basename(item.file)}:{item.line}" if item.file and item.line else None


def _access_evidence(view: ProcessView, core: GpuCore, failed: FailedLaunch) -> list[r.Evidence]:
    access = failed.access
    if access is None:
        return []
    who = "a thread of that warp"
    if access.last_addr is None:
        who = f"thread {access.thread.thread} of block {access.thread.block}"
    storage = view.storages.of_place(access.place) if access.place.storage is not None else None
    made = [item for item in (allocation_evidence(storage), free_evidence(storage)) if item is not None]
    return [
        r.Evidence(
            "access",
            f"{who} {access_words(access)} ({FOUND})",
            path=core.path,
            device=core.device,
            function=failed.exception.kernel,
            access=access.kind,
            nbytes=access.nbytes,
            addr=hex_addr(access.addr),
            base=hex_addr(access.place.storage.base) if access.place.storage else None,
        ),
        *made,
    ]


def _evidence(core: GpuCore, item: GpuException) -> r.Evidence:
    return r.Evidence(
        "gpu-core",
        _sentence(item),
        path=core.path,
        device=core.device,
        function=item.kernel,
        addr=hex_addr(item.pc),
        text=item.name,
        count=item.warps,
    )


def _exception(space: AddressSpace, item: GpuException) -> r.GpuExceptionReport:
    return r.GpuExceptionReport(
        code=item.code,
        name=item.name,
        pc=hex_addr(item.pc),
        pc_exact=item.pc_exact,
        kernel=item.kernel,
        function=item.function,
        offset=item.offset,
        source=item.file,
        line=item.line,
        sm=item.sm,
        block=list(item.block) if item.block else None,
        thread=list(item.thread) if item.thread else None,
        grid=list(item.grid) if item.grid else None,
        block_size=list(item.block_size) if item.block_size else None,
        warps=item.warps,
        access=_access(space, item),
        pointers=[
            r.GpuPointer(found=how, addr=hex_addr(addr), says=words) for how, addr, words in pointers(space, item)
        ],
    )


def _access(space: AddressSpace, item: GpuException) -> r.GpuAccess | None:
    access = explaining_access(space, item)
    if access is None:
        return None
    return r.GpuAccess(
        kind=access.kind,
        nbytes=access.nbytes,
        addr=hex_addr(access.addr),
        last_addr=hex_addr(access.last_addr) if access.last_addr is not None else None,
        block=list(access.thread.block),
        thread=list(access.thread.thread),
        found=FOUND,
        says=access_words(access),
    )
