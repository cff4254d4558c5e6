"""The checks of `pytracer doctor`: one function per question, each returning a `Check`.

If the real state is hard to create in a test, a check is two functions: `check_x()` observes, `x(...)` concludes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence

from pytracer._errors import PytracerError
from pytracer.cli.checks import cuda, environment, faults, guard, recording, storages, threads, wrappers
from pytracer.cli.checks.answer import LIMITED, MISSING, WORKS, Check

__all__ = ["ENVIRONMENT", "LIMITED", "MISSING", "RECORDING", "TRIALS", "WORKS", "Check", "run_checks"]

RECORDING: Sequence[Callable[[], Check]] = (
    recording.check_python,
    recording.check_kernel,
    recording.check_core,
    recording.check_preload,
    recording.check_crash_handler,
    recording.check_directory,
)
ENVIRONMENT: Sequence[Callable[[], Check]] = (
    recording.check_torch,
    faults.check_c_library,
    threads.check_thread_stacks,
    threads.check_other_threads,
    threads.check_helper,
    threads.check_ptrace,
    faults.check_signal_handlers,
    faults.check_tools,
    faults.check_core_dumps,
    environment.check_shared_memory,
    environment.check_limits,
    environment.check_seccomp,
    guard.check_guard,
    environment.check_disassembler,
    environment.check_symbols,
    environment.check_stacks,
    environment.check_html,
    environment.check_services,
    environment.check_history,
    environment.check_urls,
    environment.check_engines,
)
# Each starts children that import torch: 9 s in all on a machine that does nothing else.
TRIALS: Sequence[Callable[[], Check]] = (
    recording.check_native,
    storages.check_storages,
    cuda.check_cuda,
    wrappers.check_wrappers,
)


def run_checks(*, full: bool) -> Iterator[Check]:
    """The checks in the order of a reader's questions; an error in a check is reported and does not stop the rest.

    `full`: the trials with torch, too.
    """
    for essential, functions in ((True, RECORDING), (False, ENVIRONMENT), (False, TRIALS if full else ())):
        for function in functions:
            try:
                yield function()
            except (OSError, ValueError, PytracerError, subprocess.SubprocessError) as error:
                name = function.__name__.removeprefix("check_").replace("_", "-")
                yield Check(name, MISSING if essential else LIMITED, f"could not be checked: {error}", "", essential)
