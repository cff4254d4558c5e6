"""Process -> `ProcessView`: the facts about its end that rules ask about. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file, of_multiprocessing
from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.operands import aimed_at
from pytracer.analyze.assemble.addresses import AddressReports
from pytracer.analyze.assemble.communication import recent_collectives
from pytracer.analyze.assemble.guard import guard_report
from pytracer.analyze.assemble.machine_state import stack_cycle
from pytracer.analyze.assemble.threads import Threads
from pytracer.analyze.deaths.ending import ending_in_mid_work, stopped_at
from pytracer.analyze.evidence.cuda.cuda_graphs import graph_use
from pytracer.analyze.evidence.cuda.cuda_streams import current_stream
from pytracer.analyze.evidence.ends.sent_signals import Sent, first_sent, sent_signals
from pytracer.analyze.evidence.native.jumps import refused_branch
from pytracer.analyze.parts import (
    StorageReports,
    bucket_report,
    exception_report,
    handled_report,
    mapping_report,
    native_frame,
    python_frame,
    unit_report,
)
from pytracer.analyze.platform.aarch64 import abort_access, decode_aarch64
from pytracer.analyze.platform.instruction import (
    Instruction,
    address_expression,
    decode_instruction,
    is_canonical,
    page_fault_access,
)
from pytracer.analyze.platform.signals import SI_KERNEL, SIGABRT, SIGBUS, SIGSEGV, code_name, signal_name
from pytracer.analyze.timeline.clock import ProcessClock, RunClock
from pytracer.analyze.view import ProcessView, RecordedSender, began_with_exception
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.decode.types.journal import CppException, ExitRequest, Fact, ThreadException
from pytracer.decode.types.snapshot import Crash, NativeFrame, Process, PythonFrame, Snapshot
from pytracer.report import job as r

_TERMINATE_TO_ABORT_NS = 10_000_000_000
_SPAWN = of_multiprocessing("spawn")
_PROCESS = of_multiprocessing("process")
_MOST_EXIT_REQUESTS = 32  # that a process records: the last one is not known after these


def build_view(
    index: int,
    process: Process,
    clock: RunClock,
    senders: tuple[RecordedSender, ...] = (),
    seen: SeenProcess | None = None,
    killed_for: str | None = None,
) -> ProcessView:
    """One process with everything about its end that needs no judgement."""
    snapshot = process.snapshot
    crash = snapshot.crash if snapshot.crash is not None and not snapshot.crash.repaired else None
    instruction = _instruction(snapshot.arch, crash)
    storages = StorageReports(AddressSpace(snapshot), clock.of(snapshot))
    space = storages.space
    here = _place(space, crash, instruction)
    access = _access(snapshot.arch, crash, here, instruction)
    place = aimed_at(space, here, instruction, access)
    exception = _exception(process, crash, raised=began_with_exception(process, crash))
    exit_request = _exit_request(process)
    python_stack, native_stack = _stacks(process, crash, exception)
    if python_stack is None and exit_request is not None and exit_request.status:
        python_stack = exit_request.python_stack
    threads = Threads(snapshot, crash)
    opener = threads.region_opener()
    return ProcessView(
        index=index,
        process=process,
        storages=storages,
        place=place,
        instruction=instruction,
        ended_ns=storages.clock.relative(process.ended_mono_ns),
        signal=_signal(process, crash),
        fault=_fault(storages, crash, place, instruction, access),
        exception=exception,
        thread=threads.crashed(),
        python_stack=python_stack,
        native_stack=native_stack,
        region_opener=opener[0] if opener else None,
        region_python=opener[1] if opener else [],
        stack_cycle=stack_cycle(crash) if crash else None,
        collectives=recent_collectives(process, space.uses),
        current_stream=current_stream(snapshot.events, crash.tid if crash else None),
        guard=guard_report(snapshot.guard, storages),
        senders=senders,
        thread_exceptions=_thread_exceptions(process, storages.clock),
        exit_request=exit_request,
        handled=_handled(end_of(process, crash, exception)),
        seen=seen,
        killed_for=killed_for,
    )


_Stacks = tuple[list[r.PythonFrame] | None, list[r.NativeFrame] | None]


def _stacks(process: Process, crash: Crash | None, exception: r.ExceptionReport | None) -> _Stacks:
    """The Python and the native stack of the end: of the crash, of the exception, of an exit in mid-work, or of where a
    signal from outside met the process.
    """
    end = end_of(process, crash, exception)
    if end is not None:
        trains = _training_thread(process.snapshot, end) if crash is None else None
        if trains is not None:
            return _frames(trains, end.native_stack)
        return _frames(end.python_stack, end.native_stack)
    return (exception.python_stack, None) if exception is not None else (None, None)


def end_of(process: Process, crash: Crash | None, exception: r.ExceptionReport | None) -> Crash | None:
    """What was written of the moment that these stacks are of; None after an exception, whose own stack counts."""
    if crash is not None or exception is not None:
        return crash
    killed = process.status_kind in ("signaled", "vanished")
    ending = process.snapshot.ending if killed else ending_in_mid_work(process.snapshot.ending)
    return stopped_at(process) if ending is None and (killed or process.status_kind == "running") else ending


def _training_thread(snapshot: Snapshot, end: Crash) -> Sequence[PythonFrame] | None:
    """The stack of the thread that called the last collective, where the thread that was met runs no line of the
    program: Ray Train trains in a thread of its own.
    """
    if not snapshot.collectives or any(not is_library_file(frame.file) for frame in end.python_stack):
        return None
    tid = snapshot.collectives[-1].tid
    pthread = next((thread.pthread for thread in snapshot.threads if thread.tid == tid), None)
    frames = next((frames for item, frames in end.python_threads if item == pthread), ())
    return frames if any(not is_library_file(frame.file) for frame in frames) else None


def _handled(end: Crash | None) -> r.HandledExceptionReport | None:
    data = end.handled if end is not None else None
    return handled_report(data) if data is not None else None


def _frames(python: Sequence[PythonFrame], native: Sequence[NativeFrame]) -> _Stacks:
    return [python_frame(frame) for frame in python], [native_frame(frame) for frame in native]


def register(crash: Crash, *names: str) -> int | None:
    """A saved register by any of its names, upper or lower case."""
    lower = {name.lower(): value for name, value in crash.registers.items()}
    return next((lower[name] for name in names if name in lower), None)


def _instruction(arch: str, crash: Crash | None) -> Instruction | None:
    if crash is None or crash.code <= 0:
        return None
    registers = {name.lower(): value for name, value in crash.registers.items()}
    if arch == "aarch64":
        return decode_aarch64(crash.code_bytes, registers, crash.pc)
    return decode_instruction(crash.code_bytes, registers, crash.pc, crash.fault_addr)


def _place(space: AddressSpace, crash: Crash | None, instruction: Instruction | None) -> Place | None:
    """The accessed address. x86-64 hides non-canonical ones: then it follows from the instruction, if possible."""
    if crash is None or crash.code <= 0 or crash.signal not in (SIGSEGV, SIGBUS):
        return None
    if not _is_hidden(crash):
        return space.describe(crash.fault_addr)
    addr = _hidden_address(space.snapshot.arch, crash, instruction)
    return space.describe(addr) if addr is not None else Place(0, "non-canonical")


def _is_hidden(crash: Crash) -> bool:
    """A general-protection fault: the kernel gives SI_KERNEL and address 0."""
    return crash.code == SI_KERNEL and crash.fault_addr == 0


def _hidden_address(arch: str, crash: Crash, instruction: Instruction | None) -> int | None:
    jump = refused_branch(arch, crash, instruction)
    if jump is not None:
        return jump.target if jump.target is not None and not is_canonical(jump.target) else None
    return instruction.addr if instruction is not None else None


def _access(arch: str, crash: Crash | None, place: Place | None, instruction: Instruction | None) -> str | None:
    """The kind of the refused access: "read", "write", "execute", or None when it is unknown."""
    if crash is None or place is None:
        return None
    if arch == "aarch64":
        access = abort_access(crash.error_code)
    else:
        access = page_fault_access(register(crash, "trapno", "trap"), crash.error_code)
    refused = _is_hidden(crash) and refused_branch(arch, crash, instruction) is not None
    if access == "execute" or refused or (crash.pc == place.addr and _is_known(arch, crash, instruction)):
        return "execute"
    return access or (instruction.access if instruction else None)


def _is_known(arch: str, crash: Crash, instruction: Instruction | None) -> bool:
    """Whether the address is: the kernel hides non-canonical ones."""
    return not _is_hidden(crash) or _hidden_address(arch, crash, instruction) is not None


def _fault(
    storages: StorageReports,
    crash: Crash | None,
    place: Place | None,
    instruction: Instruction | None,
    access: str | None,
) -> r.Fault | None:
    if crash is None or place is None:
        return None
    snapshot, execute = storages.space.snapshot, access == "execute"
    arch = snapshot.arch
    known = _is_known(arch, crash, instruction)
    refused = _is_hidden(crash) and refused_branch(arch, crash, instruction) is not None
    expression, found = address_expression(instruction, crash.registers, place.addr) if not execute else (None, None)
    fault = r.Fault(
        addr=hex_addr(place.addr) if known else None,
        access=access,
        size=instruction.size if instruction and not execute else None,
        kind=place.kind,
        storage=storages.of_place(place),
        bucket=bucket_report(place),
        cuda_graph=graph_use(snapshot.cuda_graphs, place, storages.clock),
        fsdp=unit_report(place),
        mapping=mapping_report(crash, place.mapping),
        instruction=instruction.words if instruction and (refused or not execute) else None,
        expression=expression,
        expression_found=found if expression else None,
    )
    if not known:
        return fault
    return AddressReports(storages).with_surroundings(fault, place, instruction if not execute else None)


def _signal(process: Process, crash: Crash | None) -> r.Signal | None:
    """The one that ended it; of one that a handler passed on to its own process, the first."""
    if crash is not None:
        last = Sent(crash.signal, crash.code, crash.sender_pid or 0, crash.sender_command, crash.mono_ns)
        first = first_sent(process.snapshot, last) if crash.code <= 0 else last
        if first is not last:
            return _sent(first)
        return r.Signal(
            number=crash.signal,
            name=signal_name(crash.signal),
            code=code_name(crash.signal, crash.code),
            sender_pid=crash.sender_pid if crash.code <= 0 else None,
            sender_command=list(crash.sender_command) or None,
        )
    if process.signal is None:
        return None
    sent = next(reversed(sent_signals(process.snapshot, process.signal)), None)
    if sent is None:
        return r.Signal(number=process.signal, name=signal_name(process.signal))
    return _sent(first_sent(process.snapshot, sent))


def _sent(sent: Sent) -> r.Signal:
    return r.Signal(
        number=sent.signal,
        name=signal_name(sent.signal),
        code=code_name(sent.signal, sent.code),
        sender_pid=sent.sender_pid or None,
        sender_command=list(sent.command) or None,
    )


def _exception(process: Process, crash: Crash | None, *, raised: bool) -> r.ExceptionReport | None:
    """What was thrown and not caught: the Python exception that began the end, else a C++ one right before abort()."""
    cpp = _cpp_exception(process.snapshot.recorded(CppException), crash)
    data = process.exception
    if data is None or (cpp is not None and not raised):
        return cpp
    return exception_report(data)


def _thread_exceptions(process: Process, clock: ProcessClock) -> tuple[r.ThreadExceptionReport, ...]:
    """Those of the process itself: a forked child has its parent's entries, too."""
    return tuple(
        r.ThreadExceptionReport(
            type=fact.data.type,
            message=fact.data.message,
            python_stack=[python_frame(frame) for frame in fact.data.python_stack],
            thread=fact.data.thread or None,
            tid=fact.data.tid,
            time=clock.relative(fact.mono_ns),
        )
        for fact in process.snapshot.recorded(ThreadException)
        if fact.mono_ns >= process.snapshot.created_mono_ns
    )


def _exit_request(process: Process) -> r.ExitRequestReport | None:
    """The last one, with the status that the process ended with: others were caught."""
    facts = [
        item for item in process.snapshot.recorded(ExitRequest) if item.mono_ns >= process.snapshot.created_mono_ns
    ]
    last = _of_program([fact.data for fact in facts]) if facts else None
    ended_so = process.status_kind == "exited" and ending_in_mid_work(process.snapshot.ending) is None
    if (
        last is None
        or not ended_so
        or last.status != process.exit_code
        or process.exception is not None
        or len(facts) >= _MOST_EXIT_REQUESTS
    ):
        return None
    return r.ExitRequestReport(
        status=last.status,
        message=last.message or None,
        python_stack=[python_frame(frame) for frame in last.python_stack],
        context=[handled_report(item) for item in last.context] or None,
    )


def _of_program(requests: Sequence[ExitRequest]) -> ExitRequest:
    """The last one, or what that passes on: a spawned child of multiprocessing catches SystemExit, and exits again."""
    last, earlier = requests[-1], requests[-2] if len(requests) > 1 else None
    passes_on = any(item.function == "spawn_main" and item.file.endswith(_SPAWN) for item in last.python_stack[:1])
    inside = earlier is not None and any(item.file.endswith(_PROCESS) for item in earlier.python_stack)
    if passes_on and inside and earlier is not None and earlier.status == last.status:
        return earlier
    return last


def _cpp_exception(noted: Sequence[Fact[CppException]], crash: Crash | None) -> r.ExceptionReport | None:
    """The exception for which std::terminate() was called, of the crashed thread if there is one."""
    if crash is None or crash.signal != SIGABRT:
        return None
    recent = [fact for fact in noted if 0 <= crash.mono_ns - fact.mono_ns <= _TERMINATE_TO_ABORT_NS]
    own = [fact for fact in recent if fact.data.tid == crash.tid]
    last = next(reversed(own or recent), None)
    if last is None or not last.data.type:
        return None
    return r.ExceptionReport(type=last.data.type, message=last.data.what, language="C++")
