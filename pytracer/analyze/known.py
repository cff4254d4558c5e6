"""Crashes of PyTorch itself that are recognised by where they happen: fingerprint -> what to tell the user."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.view import ProcessView


@dataclass(frozen=True)
class KnownCrash:
    """`function` is the innermost native function; `environment` must hold as well, where it was recorded."""

    function: str
    environment: tuple[str, str] | None
    says: str
    advice: str


KNOWN_CRASHES = (
    # torch 2.13.0 (CPU wheel): building DDP over gloo under DETAIL dies with SIGSEGV in every process, 5 of 5 times;
    # OFF and INFO do not. DETAIL wraps the backend in another class. The small garbage pointer differs from run to run
    # (0x281, 0x61), so it may also look aligned. Proven by tests/crash (the detail program).
    KnownCrash(
        function="c10d::Logger::set_env_variables",
        environment=("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        says="torch 2.13 dies here by itself when DDP is built over gloo with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        advice=(
            "Unset TORCH_DISTRIBUTED_DEBUG or set it to INFO, which does not crash; the training code is not at fault."
        ),
    ),
)


def known_crash(view: ProcessView) -> KnownCrash | None:
    """The known crash that a death looks like, or None."""
    environment = view.process.snapshot.environment
    for crash in KNOWN_CRASHES:
        if view.function != crash.function:
            continue
        if crash.environment is None or environment.get(crash.environment[0], "").upper() == crash.environment[1]:
            return crash
    return None
