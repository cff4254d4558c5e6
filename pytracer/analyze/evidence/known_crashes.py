"""Crashes of PyTorch itself, recognized by their location: fingerprint -> explanation for the user."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer._text import function_words
from pytracer.analyze.evidence.native_stack import functions, own_frames
from pytracer.analyze.platform.signals import SIGABRT, SIGSEGV
from pytracer.analyze.view import ProcessView


@dataclass(frozen=True)
class KnownCrash:
    """The fingerprint: signal, innermost native function, and groups of names, one of each group on the stack.

    A name of a group is part of a function's or an image's name. `environment` must hold as well. `what` is for the
    headline, `says` for the evidence.
    """

    signal: int
    innermost: str | None
    stack: tuple[tuple[str, ...], ...]
    environment: tuple[str, str] | None
    what: str
    says: str
    advice: str


KNOWN_CRASHES = (
    # torch 2.13.0 (CPU wheel): building DDP over gloo under DETAIL dies with SIGSEGV in every process, 5 of 5 times;
    # OFF and INFO do not. DETAIL wraps the backend in another class. The small garbage pointer differs from run to run
    # (0x281, 0x61), so it may also look aligned. Proven by tests/crash (the detail program).
    KnownCrash(
        signal=SIGSEGV,
        innermost="c10d::Logger::set_env_variables",
        stack=(),
        environment=("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        what="torch's own DDP logger used a garbage pointer",
        says="torch 2.13 dies here by itself when DDP is built over gloo with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        advice=(
            "Unset TORCH_DISTRIBUTED_DEBUG or set it to INFO, which does not crash; the training code is not at fault."
        ),
    ),
    # pytorch/pytorch#190489: a thread of the process group drops its last reference to a Python object while the
    # The interpreter finalizes; take_gil() ends the thread by pthread_exit(), whose unwinding meets a noexcept
    # function.
    KnownCrash(
        signal=SIGABRT,
        innermost=None,
        stack=(
            ("PyThread_exit_thread", "pthread_exit", "_Unwind_ForcedUnwind", "__pthread_unwind"),
            ("terminate", "unwind_stop", "__libc_fatal", "__gxx_personality"),
            ("libtorch", "gloo", "c10", "pybind11"),
        ),
        environment=None,
        what="a thread of torch's was ended while the interpreter was shutting down",
        says=(
            "known as pytorch/pytorch#190489: the thread asked for the GIL of an interpreter that was going away, and "
            "was ended inside a function that must not be left that way"
        ),
        advice=(
            "Call torch.distributed.destroy_process_group() before the program ends. The work itself was done: only "
            "the shutdown failed."
        ),
    ),
)


def known_crash(view: ProcessView) -> KnownCrash | None:
    """The known crash that a death looks like, or None."""
    return next((crash for crash in KNOWN_CRASHES if _fits(crash, view)), None)


def _fits(known: KnownCrash, view: ProcessView) -> bool:
    if view.crash is None or view.crash.signal != known.signal:
        return False
    if known.innermost is not None and view.function != known.innermost:
        return False
    names = [function_words(name) for name in functions(view)] + [frame.image or "" for frame in own_frames(view)]
    if not all(any(part in name for part in group for name in names) for group in known.stack):
        return False
    if known.environment is None:
        return True
    name, value = known.environment
    return view.process.snapshot.environment.get(name, "").upper() == value
