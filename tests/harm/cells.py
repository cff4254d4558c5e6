"""Runs a cell of the harm table: its program, traced and untraced, with the same power, and compares them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harm.rows import Cell, Power, Row, Way
from tests.support.cli import ROOT, clean_environment
from tests.support.leftovers import leftovers

PROGRAMS = Path(__file__).parent / "programs"
CORE = ROOT / "pytracer" / "libpytracer_core.so"
ENABLED = ROOT / "tests" / "crash" / "programs" / "enabled.py"
TIMES = int(os.environ.get("PYTRACER_HARM_TIMES", "1"))
UNAVAILABLE = 77
NOBODY = 65534
BATCH = 20  # runs below one launcher; their recordings are removed before the next batch
COST_RUNS, COST_ROUNDS = 5, 4
COST_FACTOR, COST_OFFSET_US = 1.1, 10_000
_NEVER_US = 1 << 62
FLAGS = ("-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-pthread")
SANITIZED = {
    "address": ("-fsanitize=address",),
    "thread": ("-fsanitize=thread",),
    "undefined": ("-fsanitize=undefined",),
}


@dataclass(frozen=True)
class Outcome:
    """How a program ended: status as a shell reports it, or words where the test ended it."""

    status: int | str
    stdout: str


@dataclass
class Result:
    """The result of a cell."""

    untraced: Outcome
    outcomes: Counter[Outcome]
    stderr: str
    disk_bytes: int = 0
    cpu_us: tuple[int, int] = (0, 0)  # untraced, traced: the minimum of all runs
    problems: list[str] = field(default_factory=list)

    @property
    def equal(self) -> int:
        """The number of runs that ended as the untraced one."""
        return self.outcomes[self.untraced]


def check(cell: Cell) -> Result:
    """Runs the cell. Skips the test where this machine cannot run it.

    Raises:
        AssertionError: the untraced program does not end as specified in its row.
    """
    why = _why_not(cell)
    if why:
        pytest.skip(why)
    plain = untraced(cell.row, cell.power)
    if plain.status == UNAVAILABLE:
        pytest.skip("this machine lets nobody do what the program does")
    assert plain.status == cell.row.status, f"untraced: {plain}"
    result = Result(plain, Counter(), "")
    alone = cell.power == "first-process" or cell.row.stdin or TIMES == 1
    batches = [1] * TIMES if alone else [min(BATCH, TIMES - first) for first in range(0, TIMES, BATCH)]
    for count in batches:
        with _place(cell.power) as place:
            ran = _run(cell.row, cell.way, cell.power, place, 0 if alone else count)
        result.outcomes.update(ran.outcomes)
        result.disk_bytes = max(result.disk_bytes, ran.disk_bytes // count)
        result.stderr = ran.stderr
    if cell.row.cost_us is not None:
        result.cpu_us = _compared_cost(cell)
    _judge(cell, result)
    return result


def _judge(cell: Cell, result: Result) -> None:
    for outcome, count in result.outcomes.items():
        if outcome != result.untraced:
            text = "the same text" if outcome.stdout == result.untraced.stdout else f"printed {outcome.stdout!r:.2000}"
            result.problems.append(f"{count} times status {outcome.status} and {text}")
    if result.disk_bytes > cell.row.disk_bytes:
        result.problems.append(f"{result.disk_bytes / 1e6:.1f} MB on disk, {cell.row.disk_bytes / 1e6:.1f} are allowed")
    before, now = result.cpu_us
    if now >= _NEVER_US:
        result.problems.append("no run for the cost has ended")
    elif now > _allowed_us(cell.row, before):
        result.problems.append(f"{now / 1e3:.1f} ms of CPU time, untraced {before / 1e3:.1f}")


def _allowed_us(row: Row, untraced_us: int) -> float:
    return COST_FACTOR * untraced_us + COST_OFFSET_US + (row.cost_us or 0)


def _compared_cost(cell: Cell) -> tuple[int, int]:
    """The minimum CPU time of each, over as many rounds as needed: load on the machine only ever adds."""
    least: dict[bool, int] = {}
    for _ in range(COST_ROUNDS):
        for traced in (False, True):
            with _place(cell.power) as place:
                ran = _run(cell.row, cell.way if traced else None, cell.power, place, COST_RUNS)
            least[traced] = min([*ran.cpu_us, least.get(traced, _NEVER_US)])
        if least[True] <= _allowed_us(cell.row, least[False]):
            break
    return least[False], least[True]


@functools.cache
def untraced(row: Row, power: Power) -> Outcome:
    """How the row's program ends without pytracer."""
    with _place(power) as place:
        (outcome,) = _run(row, None, power, place, 0).outcomes
    return outcome


@dataclass
class _Ran:
    outcomes: list[Outcome]
    stderr: str
    disk_bytes: int
    cpu_us: list[int]


def _run(row: Row, way: Way | None, power: Power, place: Path, count: int) -> _Ran:
    """Runs the row's program once (count 0), or `count` times below one process."""
    run = place / "run"
    command = [*_shm(row), *_power(power), *_way(way, run, power), *_again(count), *_program(row, power)]
    if way == "enable":
        at = (
            command.index(str(PROGRAMS / "waits.py"))
            if str(PROGRAMS / "waits.py") in command
            else command.index(_python(power)) + 1
        )
        command[at:at] = [str(ENABLED), str(run)]
    token = uuid.uuid4().hex
    env = clean_environment(
        PYTRACER_TEST=token, PYTHONPATH=_python_path(), PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(place / "work")
    )
    process = subprocess.Popen(
        command, cwd=place / "work", env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_CORE, (0, 0)),
    )  # fmt: skip
    out, err, why = _to_the_end(process, row, run, token, max(count, 1))
    disk = allocated(run)
    stdout, stderr = out.decode(errors="replace"), err.decode(errors="replace")
    if count == 0:
        status = why or _shell_status(process.returncode, exact=way != "launcher")
        return _Ran([Outcome(status, stdout)], stderr, disk, [])
    outcomes, cpu_us = [], []
    for text, wait_status, us in re.findall("(.*?)\x1e([0-9]+) ([0-9]+)\x1f", stdout, re.DOTALL):
        outcomes.append(Outcome(_shell_status(os.waitstatus_to_exitcode(int(wait_status)), exact=True), text))
        cpu_us.append(int(us))
    missing = Outcome(why or f"not run: {_shell_status(process.returncode, exact=False)}", "")
    return _Ran(outcomes + [missing] * (count - len(outcomes)), stderr, disk, cpu_us or [_NEVER_US])


def _to_the_end(
    process: subprocess.Popen[bytes], row: Row, run: Path, token: str, count: int
) -> tuple[bytes, bytes, str]:
    """Both streams, and why the test ended the process, if it did."""
    deadline = time.monotonic() + row.seconds * (1 + count / 5)
    most = 2 * row.disk_bytes * count + (64 << 20)
    stdin: bytes | None = row.stdin.encode()
    why = ""
    while True:
        try:
            out, err = process.communicate(stdin, timeout=0.5)
        except subprocess.TimeoutExpired:
            stdin = None
        else:
            return out, err, why
        if not why and time.monotonic() > deadline:
            why = "did not end"
        if not why and allocated(run) > most:
            why = "filled the disk"
        if why:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            leftovers(token, 0)


def allocated(directory: Path) -> int:
    """Disk space of the files below a directory, in bytes."""
    total = 0
    for base, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_blocks * 512
    return total


def _shell_status(status: int, *, exact: bool) -> int | str:
    """128 + n for signal n. `exact`: text for an exit with that number, which the launcher's status cannot show."""
    if status < 0:
        return 128 - status
    return f"exit {status}" if exact and status > 128 else status


@contextlib.contextmanager
def _place(power: Power) -> Iterator[Path]:
    """A directory for one run that every user can reach; the process that runs owns its contents."""
    place = Path(tempfile.mkdtemp(prefix="harm-"))
    try:
        place.chmod(0o755)
        (place / "work").mkdir()
        (place / "run").mkdir(mode=0o700)
        if power == "unprivileged":
            for name in ("work", "run"):
                os.chown(place / name, NOBODY, NOBODY)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _why_not(cell: Cell) -> str:
    root = os.geteuid() == 0
    if cell.power in ("no-ptrace", "unprivileged") and not root:
        return "only root can give up what others do not have"
    if cell.power in ("no-ptrace", "unprivileged") and not shutil.which("setpriv"):
        return "setpriv is not installed"
    if cell.power == "unprivileged":
        needed = (
            [CORE, ROOT / "pytracer"]
            if cell.way != "launcher"
            else [CORE, ROOT / "pytracer", Path(_python(cell.power))]
        )
        closed = [path for path in needed if not _open_to_all(path)]
        if closed:
            return f"{closed[0]} cannot be reached by other users"
    if (cell.power == "first-process" or cell.row.full_shm) and not _unshares():
        return "namespaces cannot be made here"
    if "sanitized" in cell.row.group and not program(cell.row.group):
        return "the compiler has no such sanitizer"
    return ""


@functools.cache
def _unshares() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _open_to_all(path: Path) -> bool:
    real = path.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents) and bool(
        real.stat().st_mode & stat.S_IROTH
    )


@functools.cache
def _python(power: Power) -> str:
    """This interpreter, or, where others cannot reach it, another one of the same version."""
    if power != "unprivileged" or _open_to_all(Path(sys.executable)):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for directory in ("/usr/bin", "/usr/local/bin"):
        if os.access(f"{directory}/{name}", os.X_OK):
            return f"{directory}/{name}"
    return sys.executable


def _python_path() -> str:
    return os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])


def _shm(row: Row) -> list[str]:
    if not row.full_shm:
        return []
    script = 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def _power(power: Power) -> list[str]:
    if power == "no-ptrace":
        return ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
    if power == "unprivileged":
        return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    if power == "filtered":
        return [str(program("permissive"))]
    if power == "first-process":
        return ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return []


def _way(way: Way | None, run: Path, power: Power) -> list[str]:
    if way == "environment":
        return ["env", f"LD_PRELOAD={CORE}", f"PYTRACER_DIR={run}"]
    if way == "launcher":
        return [_python(power), "-m", "pytracer", "run", "--no-report", "-o", str(run), "--"]
    return ["env"]


def _again(count: int) -> list[str]:
    return [str(program("again")), str(count)] if count else []


def _program(row: Row, power: Power) -> list[str]:
    words = [word.replace("{python}", _python(power)) for word in row.command]
    for match in {match for word in words for match in re.findall(r"\{programs\}/(\w+)(?![\w.])", word)}:
        program(match)
    built = str(_programs())
    words = [
        re.sub(r"\{programs\}/(\w+\.py)", lambda found: str(PROGRAMS / found[1]), word).replace("{programs}", built)
        for word in words
    ]
    if "/" not in words[0]:
        words[0] = str(program(words[0]))
    return words


@functools.cache
def _programs() -> Path:
    """Where this process's programs are; removed with it."""
    import atexit

    directory = Path(tempfile.mkdtemp(prefix="harm-programs-"))
    directory.chmod(0o755)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@functools.cache
def program(name: str) -> Path | None:
    """A program of `programs/`, compiled; `name` may end with a sanitizer. None where that one is not installed."""
    source, _, sanitizer = name.partition(".")
    made = _programs() / name
    command = [
        os.environ.get("CC", "cc"),
        *FLAGS,
        *SANITIZED.get(sanitizer, ()),
        "-o",
        str(made),
        str(PROGRAMS / f"{source}.c"),
        "-lrt",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LD_PRELOAD": ""})
    if done.returncode != 0 and sanitizer:
        return None
    assert done.returncode == 0, done.stderr
    made.chmod(0o4755 if name == "set_user_id" and os.geteuid() == 0 else 0o755)
    return made
