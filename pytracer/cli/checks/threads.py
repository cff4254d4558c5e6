"""Which threads can be recorded: alternate stacks, ptrace of a sibling, the launcher's helper, all of it together."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytracer import _paths as paths
from pytracer._paths import install_again
from pytracer.cli.checks import trials
from pytracer.cli.checks.answer import (
    LIMITED,
    MISSING,
    WORKS,
    Check,
    boxes,
    is_built,
    last_line,
    run,
    traced,
)  # fmt: skip
from pytracer.decode.recording.reader import read_box

HELPER = "_helper"
_TRIALS = str(Path(trials.__file__).resolve())
_PACKAGES = str(Path(trials.__file__).resolve().parents[3])
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_SCOPES = {
    0: "",
    1: "ptrace_scope is 1: parents, and processes permitted by PR_SET_PTRACER, as the helper is",
    2: "ptrace_scope is 2: root only",
    3: "ptrace_scope is 3: nobody",
}
_INSTEAD = "stacks of other threads are taken by a real-time signal; threads that block it are only listed"
_KINDS = {"main": "the main thread", "python": "Python threads", "raw": "OpenMP workers and raw pthreads"}


def check_thread_stacks() -> Check:
    """A stack overflow can be reported on threads that have an alternate stack."""
    name = "thread-stacks"
    if not is_built():
        return Check(name, MISSING, "not tried, there is no core")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        preloaded = traced(Path(directory), _TRIALS, "stacks")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        environment = {key: text for key, text in os.environ.items() if not key.startswith(("PYTRACER_", "LD_PRELOAD"))}
        path = os.pathsep.join(filter(None, (_PACKAGES, environment.get("PYTHONPATH"))))
        enabled = run([sys.executable, _TRIALS, "stacks", directory], {**environment, "PYTHONPATH": path}, directory)
    for done in (preloaded, enabled):
        if done.returncode:
            return Check(name, LIMITED, f"could not be tried: {last_line(done)}")
    return thread_stacks(json.loads(preloaded.stdout), json.loads(enabled.stdout))


def thread_stacks(preloaded: dict[str, bool], enabled: dict[str, bool]) -> Check:
    """The result with preload and after enable(); kind of thread -> has an alternate stack."""
    without = [_KINDS[kind] for kind, has in enabled.items() if not has]
    alone = f"enable() alone: not {', '.join(without)} until they touch storages" if without else "enable() alone: too"
    lacking = [_KINDS[kind] for kind, has in preloaded.items() if not has]
    if lacking:
        detail = f"`pytracer run`: none on {', '.join(lacking)}, whose stack overflows leave no report; {alone}"
        return Check("thread-stacks", LIMITED, detail, install_again())
    detail = f"`pytracer run`: stack overflows are reported on every thread; {alone}"
    return Check("thread-stacks", WORKS, detail, "prefer `pytracer run` to enable()" if without else "")


def check_ptrace() -> Check:
    """A child stops another child, as the launcher's helper stops a dying process."""
    scope = int(_YAMA.read_text(encoding="ascii")) if _YAMA.exists() else 0
    return ptrace(_seize_a_sibling(), scope)


def ptrace(error: int | None, scope: int) -> Check:
    """The result for the error of PTRACE_SEIZE (0: none, None: it never returned) and Yama's scope."""
    why = _SCOPES.get(scope, f"ptrace_scope is {scope}")
    if error == 0:
        return Check("ptrace", WORKS, "; ".join(filter(None, ("a process may stop its sibling", why))))
    if scope >= 2:
        following = "sysctl kernel.yama.ptrace_scope=1" + (" (3 stays until the next boot)" if scope == 3 else "")
        return Check("ptrace", LIMITED, f"forbidden, {why}; {_INSTEAD}", following)
    if error is None:
        return Check("ptrace", LIMITED, f"a stopped sibling gave no answer; {_INSTEAD}")
    word = errno.errorcode.get(error, str(error))
    detail = f"forbidden ({word}), as by a container's filter of system calls; {_INSTEAD}"
    return Check("ptrace", LIMITED, detail, "start the container with --cap-add SYS_PTRACE")


def check_helper() -> Check:
    """The program beside the core that reads the threads of a dying process."""
    return helper(paths.built_core().parent / HELPER)


def helper(path: Path) -> Check:
    """The result for the file at `path`."""
    if not path.is_file():
        return Check("helper", LIMITED, f"{path} is not built; {_INSTEAD}", install_again())
    if not os.access(path, os.X_OK):
        return Check("helper", LIMITED, f"{path} may not be executed; {_INSTEAD}", f"chmod +x {path}")
    return Check("helper", WORKS, str(path))


def check_other_threads() -> Check:
    """A child with a second thread dies under `pytracer run`; checks how that thread's stack was taken."""
    name = "other-threads"
    if not is_built():
        return Check(name, MISSING, "not tried, there is no core")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        command = ["-m", "pytracer", "run", "--no-report", "-o", directory, "--", sys.executable, _TRIALS, "threads"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([_PACKAGES, os.environ.get("PYTHONPATH", "")])}
        done = run([sys.executable, *command], environment, directory)
        crashes = [crash for path in boxes(directory) if (crash := read_box(path).crash)]
    if not crashes:
        return Check(name, LIMITED, f"a child with two threads left no crash report: {last_line(done)}")
    return other_threads(crashes[0].threads_how, [thread.state for thread in crashes[0].threads])


def other_threads(how: str | None, states: Sequence[str]) -> Check:
    """The result for a child's recording: how stacks were taken, and the state of each thread's."""
    following = "see ptrace and helper"
    if how is None or not states:
        return Check("other-threads", LIMITED, "the other threads of a dying process were not seen", following)
    if "done" not in states:
        detail = f"the other threads of a dying process were listed, without stacks ({', '.join(sorted(set(states)))})"
        return Check("other-threads", LIMITED, detail, following)
    if how == "helper":
        return Check("other-threads", WORKS, "the helper stopped a dying process and its threads' stacks were taken")
    detail = "the threads of a dying process took their stacks on a real-time signal; those that block it are missing"
    return Check("other-threads", LIMITED, detail, following)


def _seize_a_sibling() -> int | None:
    """Error number of PTRACE_SEIZE of a sibling by a child; None without an answer."""
    with subprocess.Popen([sys.executable, "-I", _TRIALS, "sleep"], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout is not None
            target.stdout.readline()  # it ends by its own alarm at the latest
            done = run([sys.executable, "-I", _TRIALS, "seize", str(target.pid)])
        finally:
            target.kill()
    return int(done.stdout) if done.returncode == 0 else None
