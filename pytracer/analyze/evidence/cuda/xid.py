"""Xid lines: NVIDIA's driver's messages about faults of devices in the kernel's log.

    NVRM: Xid (PCI:0000:01:00): 31, pid=80798, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1
    GPCCLIENT_T1_3 faulted @ 0x7e9f_4f200000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ

The pid is one of the first pid namespace: in a container it cannot be compared, and does not show whose fault
it was. Some lines have none, e.g. those about a device as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import hex_addr, time_words
from pytracer.analyze.address_space.device_memory import device_words, made_words
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.evidence.ends.oom import witness_of
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.host_counters import KernelLine
from pytracer.report.job import Evidence

_LINE = Pattern(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(.*)")
_WARP = Pattern(r"SM Warp Exception on \([^)]*\): ([\w /-]+)")
_ENDED = 43
_PID = Pattern(r"pid='?(\d+)")
# Below --gpu-core the driver does not know the fault, nor its address: then both are arbitrary (driver 580.159, H200).
_ADDRESS = Pattern(r"faulted @ 0x([0-9a-fA-F_]+)(?!.*UNRECOGNIZED_FAULT)")
_ACCESS = Pattern(r"ACCESS_TYPE_\w*?(READ|WRITE|ATOMIC)")
# Lines without a usable pid: how long before the end, and how late the launcher may have read them.
_BEFORE_NS = 60_000_000_000
_AFTER_NS = 5_000_000_000


class Meaning(msgspec.Struct, frozen=True):
    """What an Xid means. `kind`: "program", "hardware", "driver" or "consequence"; `step`: what to do next."""

    what: str
    kind: str
    step: str


_SANITIZE = "Run the program under compute-sanitizer, or with `pytracer run --gpu-core`: it names the kernel."
_RESET = "Drain the node, reset the GPU (nvidia-smi -r), and see its ECC counters with nvidia-smi -q."
_LINK = "Look at the links with nvidia-smi nvlink -e, and at the fabric manager's log."
_DRIVER = "Reset the GPU or restart the machine; if it comes back, another version of the driver may help."
_POWER = "Restart the machine; look at power, temperature and the slot if it comes back."
FAULT = 31  # a kernel used an address that is not mapped
_WRONG_USE = "a kernel did what it may not: an address out of range or misaligned, an illegal instruction"
_CLEANED_UP = "the work of the process was cleaned up after an earlier error, or because it was killed"
_CONTAINED = "an uncorrectable ECC error that was contained: only the process that met it was ended"
_UNCONTAINED = "an uncorrectable ECC error that was not contained: other processes may be affected"
# docs.nvidia.com/deploy/xid-errors, the frequent ones; docs/guide/gpu.md has the same table.
MEANINGS: dict[int, Meaning] = {
    8: Meaning("a kernel ran for too long, or the device stopped processing", "program", _SANITIZE),
    13: Meaning(_WRONG_USE, "program", _SANITIZE),
    31: Meaning("a kernel used an address that is not mapped", "program", _SANITIZE),
    32: Meaning("the stream of commands to the device was damaged", "driver", _DRIVER),
    43: Meaning("the work of the process was ended after a fault of its own", "consequence", _SANITIZE),
    45: Meaning(_CLEANED_UP, "consequence", _SANITIZE),
    48: Meaning("an uncorrectable ECC error in the device's memory", "hardware", _RESET),
    61: Meaning("the device's internal controller stopped", "hardware", _RESET),
    62: Meaning("the device's internal controller stopped", "hardware", _RESET),
    63: Meaning("a row of the device's memory is to be remapped after an error", "hardware", _RESET),
    64: Meaning("a row of the device's memory could not be remapped", "hardware", _RESET),
    69: Meaning("a kernel launch was refused by the graphics engine", "program", _SANITIZE),
    74: Meaning("an NVLink error", "hardware", _LINK),
    79: Meaning("the device has fallen off the bus", "hardware", _POWER),
    92: Meaning("many correctable ECC errors", "hardware", _RESET),
    94: Meaning(_CONTAINED, "hardware", _RESET),
    95: Meaning(_UNCONTAINED, "hardware", _RESET),
    109: Meaning("the device did not switch to another process's work in time", "driver", _DRIVER),
    119: Meaning("the device's own processor (GSP) does not answer", "driver", _DRIVER),
    120: Meaning("the device's own processor (GSP) failed", "driver", _DRIVER),
    140: Meaning("an ECC error that could not be recovered from", "hardware", _RESET),
    145: Meaning("an NVLink error", "hardware", _LINK),
    149: Meaning("an NVLink error", "hardware", _LINK),
    154: Meaning("the driver says how the device can be recovered", "consequence", "Do what the line says."),
}


class Xid(msgspec.Struct, frozen=True):
    """One line. `own`: it names this process; otherwise it was only written about the time of its end."""

    number: int
    device: str
    address: int | None
    access: str | None
    text: str
    own: bool
    log_ns: int | None = None

    @property
    def meaning(self) -> Meaning | None:
        """None for a number that the table has not."""
        return MEANINGS.get(self.number)


def xids_of(job: JobView, view: ProcessView) -> tuple[Xid, ...]:
    """The lines about a process, or without a comparable pid about the time of its end; those that name it first."""
    witness = witness_of(job, view)
    if witness is None:
        return ()
    found = []
    for line in witness.kernel_log.lines:
        match = _LINE.search(line.text)
        if match is None:
            continue
        pid = _PID.search(match[3]) if witness.first_pid_namespace else None
        own = pid is not None and int(pid[1]) == view.process.snapshot.pid
        if own or (pid is None and _is_near(view, line)):
            found.append(_parse(match, line, own))
    return tuple(sorted(found, key=lambda item: not item.own))


def distinct_xids(xids: Sequence[Xid]) -> tuple[Xid, ...]:
    """One of each number and address: a kernel that fails on many multiprocessors leaves three lines for each."""
    found = {(item.number, item.own, item.address): item for item in reversed(xids)}
    return tuple(reversed(found.values()))


def _parse(match: re.Match[str], line: KernelLine, own: bool) -> Xid:
    address, access = _ADDRESS.search(match[3]), _ACCESS.search(match[3])
    return Xid(
        number=int(match[2]),
        device=match[1],
        address=int(address[1].replace("_", ""), 16) if address else None,
        access=access[1].lower() if access else None,
        text=line.text[line.text.index("NVRM:") :],
        own=own,
        log_ns=line.log_us * 1000 if line.log_us is not None else None,
    )


def _is_near(view: ProcessView, line: KernelLine) -> bool:
    """The launcher looks every two seconds; a line that it read long before, or after, is another story."""
    ended = _ended(view)
    if ended is None or line.seen_mono_ns is None:
        return False
    return ended - _BEFORE_NS <= line.seen_mono_ns <= ended + _AFTER_NS


def _ended(view: ProcessView) -> int | None:
    return view.process.exception_mono_ns or (view.crash.mono_ns if view.crash else view.process.ended_mono_ns)


def stopped_itself(xids: Sequence[Xid]) -> bool:
    """Whether all that the log has of the process is that its work was ended, as after an assertion or a trap.

    A refused access has a number of its own.
    """
    own = {xid.number for xid in xids if xid.own}
    return own == {_ENDED}


def xid_words(view: ProcessView, xid: Xid) -> str:
    """`the kernel's log: Xid 31 of this process on GPU 0000:01:00: a kernel used an address that ...`."""
    whose = "of this process " if xid.own else ""
    said = f"the kernel's log: Xid {xid.number} {whose}on GPU {xid.device}"
    said += f": {xid.meaning.what}" if xid.meaning else f' ("{xid.text}")'
    if xid.address is not None:
        verb = {"read": "reading", "write": "writing", "atomic": "changing"}.get(xid.access or "", "using")
        said += f", {verb} {_address_words(view.space, xid.address) if xid.own else hex_addr(xid.address)}"
    detail = _WARP.search(xid.text)
    if detail is not None:
        said += f' ("{detail[1]}")'
    raised = view.process.exception_mono_ns
    if xid.own and xid.log_ns is not None and raised is not None and 0 < raised - xid.log_ns < _BEFORE_NS:
        said += f"; {time_words(raised - xid.log_ns)} before the exception"
    return said if xid.own else f"{said}; the line does not say whose work it was"


def xid_evidence(view: ProcessView, xid: Xid) -> Evidence:
    """The line and what its number means."""
    return Evidence(
        "xid",
        xid_words(view, xid),
        xid=xid.number,
        device=xid.device,
        pid=view.process.snapshot.pid if xid.own else None,
        addr=hex_addr(xid.address) if xid.address is not None else None,
        access=xid.access,
        text=xid.text,
    )


def _address_words(space: AddressSpace, addr: int) -> str:
    """Devices report the page of a fault: the storage at the page's start need not be the intended one."""
    place = space.describe(addr)
    words = device_words(place) if place.kind == "device-memory" else None
    if words is not None:
        made = made_words(place.storage) if place.storage is not None else ""
        return f"{hex_addr(addr)} ({words}{made}; the driver may give the start of the page only)"
    return f"{hex_addr(addr)}, where torch's allocator has no memory"
