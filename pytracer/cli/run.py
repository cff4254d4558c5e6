"""`pytracer run`: starts a command under the recorder, waits, and explains a death.

The job must not notice the launcher: it keeps the process group, the terminal, the descriptors, the signal mask and
the signal dispositions that it would have without. While it runs, the launcher only waits. Nothing that goes wrong
in reporting changes the status that is returned.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytracer._errors import PytracerError
from pytracer.record import launch
from pytracer.record.helper import helper

if TYPE_CHECKING:
    from pytracer.analyze.report import Report

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SI_KERNEL = 0x80  # siginfo.si_code of what a terminal sends (asm-generic/siginfo.h): the job got it, too

HELP = """Run COMMAND, record all its processes, and explain a death.

\b
Examples:
  pytracer run -- torchrun --nproc-per-node 2 train.py
  pytracer run -o runs/tuesday -- python train.py --epochs 3

The report of a job that died follows the job's own output, on stderr. The exit status is the one of COMMAND;
128+n if signal n ended it; 127 if there is no such command, 126 if it cannot be executed.
"""


@dataclass(frozen=True)
class Ending:
    """How the command ended: exactly one of `exit_code` and `signal` is set. `interrupted`: Ctrl-C was pressed."""

    pid: int
    exit_code: int | None
    signal: int | None
    interrupted: bool

    @property
    def status(self) -> int:
        """What a shell would show."""
        return self.exit_code if self.exit_code is not None else 128 + (self.signal or 0)

    @property
    def words(self) -> str:
        """For a sentence about the job."""
        if self.exit_code is not None:
            return f"exited with status {self.exit_code}"
        return f"was ended by {signal_name(self.signal or 0)}"


@click.command(
    "run",
    help=HELP,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    options_metavar="[OPTIONS] [--]",
)
@click.option("-o", "output", metavar="DIR", type=click.Path(path_type=Path), help="Record into DIR instead of runs/.")
@click.option("--force", is_flag=True, help="Delete the recording that DIR already holds.")
@click.option("--level", type=click.Choice(launch.LEVELS), help="How much to record.  [default: default]")
@click.option("--quiet", is_flag=True, help="Print nothing unless something died.")
@click.option("--no-report", is_flag=True, help="Record only; `pytracer inspect` makes the report later.")
@click.argument("job", metavar="COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: Path | None, force: bool, level: str | None, quiet: bool, no_report: bool, job: tuple[str, ...]
) -> int:
    """See HELP."""
    launch.core_library()
    level = launch.checked_level(level)
    program = find_program(job[0])
    run = launch.create_run(job, output, force=force)
    record = launch.start_record(job)
    launch.write_record(run, record)
    for note in run.notes:
        say(note)
    try:
        with helper(run) as note:
            if note:
                say(note)
            ending = supervise(program, job, launch.environment(run, level), lambda pid: _note_child(run, record, pid))
    except OSError as error:
        raise command_error(job[0], error) from error
    record["ended_mono_ns"] = time.monotonic_ns()
    record["exit_code"], record["signal"] = ending.exit_code, ending.signal
    # A SIGTERM that comes now is late: the job has ended, and its status is what counts. Ctrl-C ends the report.
    with _held(FORWARDED), _one_line_for_an_error():
        with _one_line_for_an_error():
            launch.write_record(run, record)
        with _one_line_for_an_error():
            run = launch.collect_boxes(run)
            for note in run.notes:
                say(note)
        _conclude(run, ending, quiet=quiet, report=not no_report)
    return ending.status


def find_program(word: str) -> str:
    """The file that a shell would execute for `word`.

    Raises:
        CommandError: there is none (127), or it may not be executed (126).
    """
    candidates = [word] if "/" in word else [os.path.join(path or ".", word) for path in os.get_exec_path()]
    found = [path for path in candidates if os.path.exists(path)]
    for path in found:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if found:
        raise command_error(found[0], PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    raise command_error(word, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


class CommandError(PytracerError):
    """The command could not be started; `exit_code` is the shell's 126 or 127."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def command_error(word: str, error: OSError) -> CommandError:
    """What exec said about `word`, with the next step and a shell's exit code."""
    if isinstance(error, FileNotFoundError):
        if "/" in word and os.path.exists(word):
            return CommandError(f"cannot execute {word}: its interpreter does not exist", "look at its first line", 127)
        hint = "check the path" if "/" in word else "check the spelling and PATH"
        return CommandError(f"there is no command {word!r}", hint, 127)
    if error.errno == errno.ENOEXEC:
        return CommandError(
            f"cannot execute {word}: it is no program and has no interpreter line", f"try `sh {word}`", 126
        )
    if os.path.isdir(word):
        return CommandError(f"cannot execute {word}: it is a directory", "name a command", 126)
    if isinstance(error, PermissionError):
        return CommandError(
            f"cannot execute {word}: permission denied", f"`chmod +x`, or name its interpreter: `python {word}`", 126
        )
    return CommandError(f"cannot execute {word}: {error.strerror}", "run `pytracer doctor`", 126)


def supervise(
    program: str, job: tuple[str, ...], environment: dict[str, str], started: Callable[[int], None]
) -> Ending:
    """Starts `program`, forwards signals, and waits for its end.

    Signals are blocked here and taken one by one with their origin, so none is lost between start and wait, and an
    interrupt that the terminal sent to the whole process group is not sent a second time. The child gets the mask
    and the dispositions that this process was started with.

    Args:
        program: path of the executable.
        job: its arguments, `argv[0]` first.
        environment: all of it.
        started: called with the child's pid.

    Raises:
        OSError: it could not be executed.
    """
    watched = {signum for signum in (*FORWARDED, signal.SIGINT) if signal.getsignal(signum) is not signal.SIG_IGN}
    watched.add(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would throw the status away
    interrupted = False
    with _held(watched) as before:
        pid = os.posix_spawn(program, job, environment, setsigmask=before, setsigdef=_to_reset())
        started(pid)
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            info = signal.sigwaitinfo(watched)
            interrupted = interrupted or info.si_signo == signal.SIGINT
            if info.si_signo != signal.SIGCHLD and info.si_code != _SI_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, info.si_signo)
    if os.WIFSIGNALED(status):
        return Ending(pid, None, os.WTERMSIG(status), interrupted)
    return Ending(pid, os.WEXITSTATUS(status), None, interrupted)


def signal_name(number: int) -> str:
    """The name of a signal, or "signal 64"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def say(line: str) -> None:
    """One line for the user, on stderr; a closed stderr is no reason to fail."""
    with contextlib.suppress(OSError, ValueError):
        print(f"pytracer: {' '.join(line.split())}", file=sys.stderr, flush=True)


def _to_reset() -> list[signal.Signals]:
    """The signals that Python ignores on its own and that the job must find at their default.

    CPython sets SIGPIPE and SIGXFSZ to ignored before any code of ours runs (Modules/signalmodule.c,
    signal_install_handlers), so what the launcher was started with is gone. Its parent still shows it: a shell
    after `trap '' PIPE`, or a service manager, ignores the signal itself. A Python parent proves nothing, because
    subprocess gives its children the default back.
    """
    own = (signal.SIGPIPE, signal.SIGXFSZ)
    try:
        parent = Path("/proc", str(os.getppid()))
        status = (parent / "status").read_text(encoding="utf-8", errors="replace")
        ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
        if "python" in os.path.basename(os.readlink(parent / "exe")):
            ignored = 0
    except (OSError, StopIteration, ValueError, IndexError):
        ignored = 0
    return [signum for signum in own if not ignored >> (signum - 1) & 1]


def _note_child(run: launch.Run, record: dict[str, Any], pid: int) -> None:
    record["child_pid"] = pid
    with _one_line_for_an_error():
        launch.write_record(run, record)


@contextlib.contextmanager
def _held(signals: Collection[int]) -> Iterator[set[int]]:
    """Blocks `signals` and yields the mask before; what comes meanwhile and is not taken is dropped at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield set(before)
    finally:
        while signal.sigtimedwait(signals, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _one_line_for_an_error() -> Iterator[None]:
    """The job has run: from here on, an error of ours is a line on stderr and nothing else."""
    try:
        yield
    except PytracerError as error:
        say(str(error))
    except KeyboardInterrupt:
        say("interrupted; `pytracer inspect` makes the report again")
    except Exception as error:  # whatever it is, the job's status counts more
        say(f"the report failed: {type(error).__name__}: {error}; please report it")


def _conclude(run: launch.Run, ending: Ending, *, quiet: bool, report: bool) -> None:
    """Says what there is to say once the job has ended."""
    shown = _shown(run.directory)
    boxes = sorted(run.boxes.glob("*" + launch.BOX_SUFFIX))
    if not boxes:
        say(
            f"{shown} holds no black box: no process of the job loaded the recorder (statically linked, set-uid, or "
            "an empty environment); run `pytracer doctor`"
        )
        return
    died = ending.status != 0 or _any_crashed(boxes)
    if died and report and not ending.interrupted:
        _report(run, ending, shown)
    elif died:
        say(f"the job {ending.words}; `pytracer inspect {shown}` explains it")
    elif not quiet:
        say(f"recorded in {shown}")


def _report(run: launch.Run, ending: Ending, shown: str) -> None:
    """Prints what killed the job, and keeps it in the run directory with the names of native frames."""
    from pytracer.analyze.engine import build_report
    from pytracer.decode.merge import SYMBOLS_FILE, load_job
    from pytracer.decode.symbolize import write_symbols
    from pytracer.render.json import render_json
    from pytracer.render.style import decide_style
    from pytracer.render.text import render_text

    job = load_job(run.directory)
    report = build_report(job)
    with _one_line_for_an_error():
        launch.write_text(run.directory / launch.REPORT_FILE, render_json(report))
        write_symbols(job, run.directory / SYMBOLS_FILE)
    if _says_nothing_new(report, ending):
        say(f"the job {ending.words}, and nothing crashed; recorded in {shown}")
        return
    print(file=sys.stderr)
    sys.stderr.write(render_text(report, decide_style("auto", sys.stderr, os.environ)))


def _says_nothing_new(report: Report, ending: Ending) -> bool:
    """Whether the status of COMMAND itself is all that the report knows, as after `grep` that found nothing."""
    verdict = report.verdict
    if verdict is None or verdict.class_ == "clean":
        return True
    kinds = {process.status.kind for process in report.processes or () if process.status is not None}
    return verdict.class_ == "unknown" and verdict.pid == ending.pid and not kinds & {"signaled", "exception"}


def _any_crashed(boxes: Sequence[Path]) -> bool:
    """Whether the crash handler of any process was the last to write its box."""
    from pytracer.blackbox import codec, schema

    header = codec.layout(schema.FILE_HEADER)
    for path in boxes:
        with contextlib.suppress(OSError, ValueError, KeyError):
            with open(path, "rb") as file:
                data = file.read(header.nbytes)
            if len(data) == header.nbytes and header.decode(data)["state"] == schema.State.CRASHED:
                return True
    return False


def _shown(directory: Path) -> str:
    """A path that can be typed: relative when it lies below the current directory."""
    try:
        return str(directory.relative_to(os.getcwd()))
    except ValueError:
        return str(directory)
