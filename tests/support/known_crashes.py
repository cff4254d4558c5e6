"""A process with exactly the facts that an entry of the registry of known crashes needs, or all but one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pytracer.analyze.engine import job_view
from pytracer.analyze.known.registry import Entry, Facts, Raised
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import CppException, Fact, Rank, Versions
from pytracer.decode.types.snapshot import Argument, Job, LoadedImage, NativeFrame, Process, Snapshot, ThreadStack
from tests.support import scenarios as s
from tests.support.synth import Box

PID = 101
SIGNALS = {"SIGABRT": 6, "SIGSEGV": 11, "SIGILL": 4, "SIGFPE": 8}
SEVERAL = ("stack", "threads", "python", "images")
GARBAGE = 0x4141_4141_4000


class Part(NamedTuple):
    """One fact: its field, and its index where the field has several."""

    field: str
    key: int | str | None = None


def parts(facts: Facts) -> Iterator[Part]:
    """Every fact of an entry."""
    for field in facts.__struct_fields__:
        value = getattr(facts, field)
        if field in SEVERAL:
            yield from (Part(field, number) for number in range(len(value)))
        elif field == "environment":
            yield from (Part(field, name) for name in value)
        elif value not in (None, ()):
            yield Part(field)
    if facts.exception is not None and facts.exception.type:
        yield Part("exception type")


ASSERTION = "/a/Loss.cu:245: nll_loss: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed."


def process_with(entry: Entry, run: Path, without: Part | None = None) -> Job:
    """A job of one process with the facts of the entry; the fact `without`, if given, has the opposite value."""
    facts = entry.facts
    crashes = facts.signal is not None or bool(facts.images)
    box = Box(pid=PID, ppid=99).at(500)
    if crashes:
        signal = SIGNALS["SIGFPE" if without == Part("signal") else facts.signal or "SIGABRT"]
        sent = signal == SIGNALS["SIGABRT"]
        addr = 0 if sent or "wild-pointer" not in entry.classes else GARBAGE
        python = _python(facts, without)
        box.crash(signal=signal, code=-6 if sent else 1, sender_pid=PID if sent else 0, addr=addr, python=python)
    else:
        raised = facts.exception or Raised("")
        name = "OtherError" if without == Part("exception type") else (*raised.type, "RuntimeError")[0]
        off = facts.gradients_off and without != Part("gradients_off")
        held = [{"name": "torch.is_grad_enabled()", "value": "False"}] if off else []
        if without == Part("kernel_assertion"):
            box.kernel_assertion(ASSERTION)
        box.exception(name, _message(entry, without), _python(facts, without), variables=held).exit(1)
    job = s.load(run, box)
    return replace(job, processes=tuple(_completed(process, entry, without) for process in job.processes))


def view_of(job: Job) -> ProcessView:
    """The view of the process that the rules get."""
    return next(view for view in job_view(job, RunClock(job)).views if view.process.snapshot.pid == PID)


def _message(entry: Entry, without: Part | None) -> str:
    return "something else" if without == Part("exception") else entry.example.message or ""


def _python(facts: Facts, without: Part | None) -> list[tuple[str, str, int]]:
    named = [
        (function, f"/site-packages/{file}", 7)
        for number, (file, function) in enumerate(facts.python)
        if without != Part("python", number)
    ]
    return [*named, ("main", s.SCRIPT, 12)]


def _completed(process: Process, entry: Entry, without: Part | None) -> Process:
    facts, snapshot = entry.facts, process.snapshot
    group = "none" if without == Part("process_group") else facts.process_group
    rank = Rank(0, 0, 2, "gloo", "destroy_process_group" if group == "left" else None)
    snapshot = replace(
        snapshot,
        versions=Versions(
            python=_version(facts.python_version, without == Part("python_version")) or "3.11.7",
            torch=entry.example.torch if facts.torch and without != Part("torch") else "99.0",
            cuda=_version(facts.cuda, without == Part("cuda")),
        ),
        environment={name: value for name, value in entry.example.environment.items() if name in facts.environment},
        arch="x86_64" if facts.architecture is None or without == Part("architecture") else facts.architecture,
        rank=rank if group in ("present", "left") else None,
    )
    if without is not None and without.field == "environment":
        snapshot = replace(snapshot, environment={str(without.key): "1"})
    if snapshot.crash is not None:
        snapshot = _with_crash(snapshot, entry, without)
    if facts.forked and without != Part("forked"):  # fork() copied the parent's entries
        snapshot = replace(snapshot, facts=(replace(snapshot.facts[0], mono_ns=1), *snapshot.facts[1:]))
    role = "process" if facts.role is None or without == Part("role") else facts.role
    size = 1 if without == Part("world_size") else facts.world_size
    return replace(process, snapshot=snapshot, role=role, world_size=size)  # type: ignore[arg-type]


def _version(wanted: str | None, missing: bool) -> str | None:
    """The lower end of a range, or a version outside of it."""
    if wanted is None:
        return None
    return "0.1" if missing else wanted.split(",")[0].lstrip("<>=")


def _with_crash(snapshot: Snapshot, entry: Entry, without: Part | None) -> Snapshot:
    facts, crash = entry.facts, snapshot.crash
    assert crash is not None
    names = ["other"] if facts.innermost is None or without == Part("innermost") else [facts.innermost]
    names += [group[-1] for number, group in enumerate(facts.stack) if without != Part("stack", number)]
    names += facts.not_on_stack[:1] if without == Part("not_on_stack") else []
    others = [group[-1] for number, group in enumerate(facts.threads) if without != Part("threads", number)]
    others += ["Py_FinalizeEx"] if facts.finalizing and without != Part("finalizing") else []
    # An operator is found by such a frame of torch, and this tensor is in the frame of its caller.
    names += ["at::_ops::linalg_eigvals::call(at::Tensor const&)", "caller"] if facts.not_finite else []
    matrix = Argument(
        1, 1 << 32, 9, 0, (3, 3), 2, "float32", "cpu", minimum=None, maximum=None, frame=0, outer_frame=len(names) - 1,
        register=None, how="reference", nans=0 if without == Part("not_finite") else 9,
    )  # fmt: skip
    images = [path for number, path in enumerate(entry.example.images) if without != Part("images", number)]
    what = _message(entry, without)
    noted = CppException(crash.tid, "c10::DistBackendError", what) if facts.exception is not None else None
    text = "something else" if without == Part("abort_text") else entry.example.abort_text
    return replace(
        snapshot,
        crash=replace(
            crash,
            native_stack=tuple(_frame(number, name, crash.pc) for number, name in enumerate(names)),
            threads=tuple(
                ThreadStack(200 + number, "python", None, "done", (_frame(number, name, 0),))
                for number, name in enumerate(others)
            ),
            images=tuple(LoadedImage(path, 1 << 44, (1 << 44) + 4096, 1 << 44, None) for path in images),
            abort_text=text,
            arguments=(matrix,) if facts.not_finite else (),
        ),
        facts=(*snapshot.facts, *([Fact(crash.mono_ns - 1000, 1, "CPP_EXCEPTION", noted)] if noted else [])),
    )


def _frame(number: int, name: str, pc: int) -> NativeFrame:
    return NativeFrame(pc if number == 0 else 0x7000_0000_0000 + number, None, None, None, "unwound", name, "exact")
