"""`pytracer run`: starts a command with the recorder preloaded, waits, and explains a death.

The job must not notice the launcher (`launcher/supervise.py`). While it runs, the launcher samples it from outside
every two seconds (`job_monitor.py`). Errors in reporting never change the returned status.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytracer._errors import PytracerError, UsageError
from pytracer._paths import RUNS
from pytracer._printable import shell_command
from pytracer._text import count_words, size_words
from pytracer.blackbox.numbers import LEVELS
from pytracer.cli.background import Background
from pytracer.cli.deaths import DeathWatch
from pytracer.cli.digest import SECONDS as DIGEST_SECONDS
from pytracer.cli.hangs import ACTIONS, SPEED_VARIABLE, HangAction, HangSettings, speed_of
from pytracer.cli.job_monitor import JobMonitor
from pytracer.cli.notify import check_configured, tell
from pytracer.cli.progress import progress_bar
from pytracer.cli.task_end import conclude_task
from pytracer.cli.terminal import say, show
from pytracer.launcher import run_directory
from pytracer.launcher.gpu_core import gpu_core_variables
from pytracer.launcher.helper import helper
from pytracer.launcher.process_monitor import Identity
from pytracer.launcher.retention import (
    BUDGET_BYTES,
    BUDGET_VARIABLE,
    find_runs,
    over_budget,
    parse_size,
    remove_boxes,
    remove_run,
    shrink_boxes,
    space_of,
)
from pytracer.launcher.shared_run import WAIT_SECONDS, join_run
from pytracer.launcher.slurm_state import slurm_state
from pytracer.launcher.start import StartError
from pytracer.launcher.subreaper import adopt
from pytracer.launcher.supervise import FORWARDED, Ending, held, supervise
from pytracer.launcher.task import task_of
from pytracer.record.guard_mode import ALL, VARIABLE, parse_guard

if TYPE_CHECKING:
    from pytracer.blackbox import structures
    from pytracer.report.job import Report

_MOST_ASKED, _ASKED_SECONDS = 64, 2.0
BOX_CHOICES = ("shrink", "keep", "remove")
HELP = """Run COMMAND, record its processes, and explain a crash or failure.

\b
Examples:
  pytracer run -- torchrun --nproc-per-node 2 train.py
  pytracer run -o runs/tuesday -- python train.py --epochs 3
  srun pytracer run -o runs/$SLURM_JOB_ID -- python train.py
  pytracer run --hang-action kill -- torchrun --nproc-per-node 8 train.py     # end a job that is in a deadlock
  pytracer run --hang-timeout 300 -- torchrun --nproc-per-node 8 train.py
  pytracer run --guard -- python train.py                 # reproduce a memory error: the access faults
  pytracer run --guard=sample:1000 -- python train.py     # in production: one storage in a thousand
  pytracer run --guard=min-bytes:64K,side:underrun -- python train.py

\b
Guard mode (docs/guide/guard.md) puts a page that faults beside CPU storages, and keeps freed ones inaccessible. WORDS:
  all, sample:N            every storage (default), or one in N
  min-bytes:SIZE           exclude smaller storages
  side:overrun|underrun    the end that is guarded to the byte  [default: overrun]
  align:64|16|4            below 64 catches more; results may then differ in their last bits
  bytes:SIZE, mappings:N   limits; beyond them storages go unguarded, and the report counts them
  mprotect                 do not use MADV_GUARD_INSTALL

The report of a job that died follows the job's own output, on stderr. The exit status is that of COMMAND;
128+n if signal n ended it; 127 if the command was not found, 126 if it cannot be executed. A command that cannot be
recorded, e.g. because the disk is full, runs unrecorded, and one line on stderr has the reason.

Below srun and mpirun, `srun pytracer run -- COMMAND` starts one launcher per task. The tasks of a step share one run:
DIR, or one below runs/ that is named for the step. The first task that fails prints the report of the whole job, once
the others have ended or --task-wait has passed (docs/guide/slurm.md).
"""


class RunCommand(click.Command):
    """`--guard` takes its value after `=` only, because the next argument may be the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click.Command."""
        with_value = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == "--guard":
                args[at] = f"--guard={ALL}"
            at += 2 if args[at] in with_value else 1
        return super().parse_args(ctx, args)


@click.command(
    "run",
    cls=RunCommand,
    help=HELP,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    options_metavar="[OPTIONS] [--]",
)
@click.option("-o", "output", metavar="DIR", type=click.Path(path_type=Path), help="Record into DIR, not below runs/.")
@click.option("--force", is_flag=True, help="Delete an existing recording in DIR.")
@click.option("--level", type=click.Choice(list(LEVELS)), help="How much to record.  [default: default]")
@click.option("--quiet", is_flag=True, help="Print nothing unless something died or is in a deadlock.")
@click.option("--explain", is_flag=True, help="Show in the report why other explanations were refused.")
@click.option(
    "--notify", is_flag=True,
    help="If the job dies, send the report to the places in [notify] of pytracer.toml (docs/guide/notify.md).",
)  # fmt: skip
@click.option(
    "--boxes",
    type=click.Choice(BOX_CHOICES),
    default="shrink",
    show_default=True,
    help="At the end: shrink gives the empty pages of all recordings back, without loss; keep leaves them as they are; "
    "remove deletes those of a run in which nothing died, and keeps its report (docs/guide/disk-space.md).",
)
@click.option(
    "--digest",
    metavar="FOLDER|URL",
    help="At the end, and when the job stands still, write a digest of the recordings there, if that takes no more "
    f"than {DIGEST_SECONDS} seconds (docs/guide/digests.md).",
)
@click.option("--no-report", is_flag=True, help="Record only; `pytracer inspect` creates the report later.")
@click.option(
    "--hang-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    help="If no process records anything for this long, print which rank waits for which, with all stacks.",
)
@click.option(
    "--hang-action",
    type=click.Choice(ACTIONS),
    default="tell",
    show_default=True,
    help="At a certain deadlock: tell prints who waits for whom, and the job goes on; dump prints all stacks, too; "
    "kill then ends the job, as it does after --hang-timeout; off watches nothing (docs/guide/hangs.md).",
)
@click.option(
    "--on-death",
    metavar="COMMAND",
    help="Run this shell command for each process that dies, with the report as JSON on its stdin, for at most "
    "a minute (docs/guide/notify.md).",
)
@click.option("--no-death-lines", is_flag=True, help="Print no line when a process dies and the job goes on.")
@click.option(
    "--task-wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=WAIT_SECONDS,
    show_default=True,
    help="Below srun or mpirun: how long the task that reports waits for the others to end.",
)
@click.option("--guard", metavar="[=WORDS]", help="Make memory errors on CPU storages fault at the access.")
@click.option(
    "--cuda-graphs",
    type=click.Choice(run_directory.CUDA_GRAPHS),
    help="warn: warn when a CUDA graph is replayed after an input was freed (docs/guide/gpu.md).",
)
@click.option(
    "--no-values",
    is_flag=True,
    help="Do not record the minimum and maximum of index tensors at a crash, nor numbers in the variables of an "
    "exception (docs/guide/secrets.md).",
)
@click.option(
    "--gpu-core",
    is_flag=True,
    help="Make the CUDA driver write a small core dump of the device when a kernel fails, and include it in the "
    "report; records at level ops unless --level is given (docs/guide/gpu.md).",
)
@click.option(
    "--subreaper",
    is_flag=True,
    help="Become the parent of orphaned processes, to learn how they end; they can detect it "
    "(docs/reference/launcher.md).",
)
@click.argument("job", metavar="COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: Path | None,
    force: bool,
    level: str | None,
    quiet: bool,
    explain: bool,
    notify: bool,
    boxes: str,
    digest: str | None,
    no_report: bool,
    hang_timeout: float | None,
    on_death: str | None,
    no_death_lines: bool,
    task_wait: float,
    hang_action: HangAction,
    guard: str | None,
    cuda_graphs: str | None,
    no_values: bool,
    gpu_core: bool,
    subreaper: bool,
    job: tuple[str, ...],
) -> int:
    """See HELP."""
    if notify:
        check_configured(click.get_current_context())
    if gpu_core and level is None and not os.environ.get("PYTRACER_LEVEL"):
        level = "ops"  # who asks for the kernel that failed wants the line that launched it
    level = run_directory.checked_level(level)
    words = guard if guard is not None else os.environ.get(VARIABLE) or None
    guarded = parse_guard(words) if words is not None else None
    program = find_program(job[0])
    try:
        run_directory.core_library()
        record = run_directory.start_record(job)
        task = task_of(os.environ)
        run = (
            join_run(task, record, output, force=force)
            if task is not None
            else run_directory.create_run(job, output, force=force)
        )
        notes = [*run.notes, *([guarded.warning] if guarded is not None and guarded.warning else [])]
        environment = run_directory.environment(run, level, guard=words, cuda_graphs=cuda_graphs, values=not no_values)
        if gpu_core:
            added, record["gpu_core"], more = gpu_core_variables(run.directory, environment)
            environment |= added
            notes += more
        deaths = DeathWatch(_shown(run.directory), lines=not no_death_lines, command=on_death)
        hang = HangSettings(hang_action, hang_timeout, quiet, speed_of(os.environ.get(SPEED_VARIABLE)), digest)
        monitored = _MonitoredJob(run, record, hang, deaths)
    except UsageError:
        raise
    except Exception as error:  # a full disk, an internal error: the command runs unrecorded
        say(f"COMMAND runs unrecorded: {error}")
        return end_like(_supervise(program, job, run_directory.given_environment()))
    for note in notes:
        say(note)
    # Who signals all processes one after the other may reach this one when the job has ended: its status counts then,
    # to the very end of this process, and only Ctrl-C ends the report.
    mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED))
    ending = monitored.run_job(program, job, environment, subreaper, mask)
    record["ended_mono_ns"] = time.monotonic_ns()
    record["exit_code"], record["signal"], record["usage"] = ending.exit_code, ending.signal, ending.usage
    with _one_line_for_an_error():
        if ending.status != 0 and not ending.interrupted and run.task is None:
            with _one_line_for_an_error():
                _ask_what_still_runs(run)
        with _one_line_for_an_error():
            run = run_directory.collect_boxes(run)
            for note in run.notes:
                say(note)
        with _one_line_for_an_error():
            run_directory.write_record(run, record)
        if not ending.interrupted:
            with _one_line_for_an_error():
                deaths.at_the_end(run, monitored.ended)

        def conclude() -> None:
            if ending.status != 0:
                with _one_line_for_an_error():
                    _ask_slurm(run, record)
            if digest is not None:
                _write_digest(run, digest)
            failed = _conclude(run, ending, quiet=quiet, report=not no_report, explain=explain, notify=notify)
            with _one_line_for_an_error():
                _tidy(run, boxes, clean=not failed and ending.status == 0)

        if run.task is None:
            conclude()
        else:
            conclude_task(run, run.task, ending, _shown(run.directory), task_wait, conclude=conclude)
    return end_like(ending)


def _ask_what_still_runs(run: run_directory.Run) -> None:
    """Has processes that outlive a failed job write where they are, as Ray's workers do: nobody else will ask them."""
    from pytracer.cli.live_request import ask
    from pytracer.decode.recording.reader import read_box

    boxes = sorted((run.recording / "boxes").glob("*" + run_directory.BOX_SUFFIX))
    alive = [path for path in boxes if any(_records(header) and _runs(header) for header in _headers([path]))]
    ask([read_box(path, light=True) for path in alive[:_MOST_ASKED]], _ASKED_SECONDS)


def _records(header: structures.FileHeader) -> bool:
    """Whether it is a process of torch's."""
    return bool(header.collectives or header.thread_count)


def _runs(header: structures.FileHeader) -> bool:
    """Whether the process that wrote a recording is alive."""
    return run_directory.start_ticks(header.pid) == header.start_ticks


def _ask_slurm(run: run_directory.Run, record: dict[str, object]) -> None:
    """Completes the record by what Slurm knows of a step that it may have ended."""
    state = slurm_state(os.environ)
    if state is not None:
        record["slurm"] = state
        run_directory.write_record(run, record)


def end_like(ending: Ending) -> int:
    """The status to return. A job that died of Ctrl-C: this process dies of it, too, or a shell's loop would go on."""
    if ending.signal == signal.SIGINT:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
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
    """The error of exec for `word`, with the next step and a shell's exit code."""
    if isinstance(error, FileNotFoundError):
        if "/" in word and os.path.exists(word):
            return CommandError(f"cannot execute {word}: its interpreter does not exist", "look at its first line", 127)
        hint = "check the path" if "/" in word else "check the spelling and PATH"
        return CommandError(f"there is no command {word!r}", hint, 127)
    if error.errno == errno.ENOEXEC:
        return CommandError(
            f"cannot execute {word}: it is no program and has no interpreter line",
            f"try `{shell_command('sh', word)}`",
            126,
        )
    if os.path.isdir(word):
        return CommandError(f"cannot execute {word}: it is a directory", "name a command", 126)
    if isinstance(error, PermissionError):
        return CommandError(
            f"cannot execute {word}: permission denied",
            f"`chmod +x`, or name its interpreter: `{shell_command('python', word)}`",
            126,
        )
    return CommandError(f"cannot execute {word}: {error.strerror}", "run `pytracer doctor`", 126)


class _MonitoredJob:
    """Waits for the job, samples it, and keeps `record` on disk up to date."""

    def __init__(
        self, run: run_directory.Run, record: dict[str, object], hang: HangSettings, deaths: DeathWatch
    ) -> None:
        """Writes run.json for the first time.

        Raises:
            RecordingError: it cannot be written.
        """
        self._run = run
        self._record = record
        # One of several launchers looks for a hang.
        hang = hang if run.first else HangSettings("off")
        self._monitor = JobMonitor(run, self._save, hang, deaths)
        record["witness"] = self._monitor.watch.as_dict()
        if run.recording != run.directory:
            record["recording"] = str(run.recording)
        run_directory.write_record(run, record)

    @property
    def ended(self) -> list[Identity]:
        """Processes whose end was seen too late for `DeathWatch`: when the job had ended."""
        return self._monitor.watch.take_ended(last=True)

    def run_job(
        self, program: str, job: tuple[str, ...], environment: dict[str, str], subreaper: bool, mask: set[int]
    ) -> Ending:
        """Runs the job to its end; `mask`: the signals that it finds blocked.

        Raises:
            CommandError: it could not be started.
        """
        watch, own = self._monitor.watch, self._monitor.own
        # The first process of a pid namespace is the parent of all orphans anyway, and no other process reaps them.
        adopted = adopt(watch.note_orphan, lambda: own) if subreaper or os.getpid() == 1 else None
        if subreaper and adopted is None:
            say("this kernel has no subreaper: ends of orphans may be missing")
        helping = contextlib.ExitStack()
        with _one_line_for_an_error():
            note = helping.enter_context(helper(self._run))
            if note:
                say(note)
        try:
            pause = _never_raising(self._monitor.pause)
            ending = _supervise(program, job, environment, self._started, pause, adopted, mask)
        finally:
            with _one_line_for_an_error():
                helping.close()
        with held(FORWARDED), _one_line_for_an_error():
            self._monitor.finish()
        self._record["witness"] = watch.as_dict()
        self._record["killed_for"] = self._monitor.killed_for
        self._record["killed"] = sorted(set(self._monitor.killed))
        return ending

    def _started(self, pid: int) -> None:
        self._record["child_pid"] = pid
        self._monitor.started(pid)
        self._save()

    def _save(self) -> None:
        with _one_line_for_an_error():
            self._record["witness"] = self._monitor.watch.as_dict()
            run_directory.write_record(replace(self._run, directory=self._run.recording), self._record)


def _supervise(
    program: str,
    job: tuple[str, ...],
    environment: dict[str, str],
    started: Callable[[int], None] = lambda _: None,
    pause: Callable[[], float | None] = lambda: None,
    adopted: Callable[[int], None] | None = None,
    mask: set[int] | None = None,
) -> Ending:
    """`supervise`, with a message for a command that cannot be executed.

    Raises:
        CommandError: it could not be started.
    """
    try:
        return supervise(program, job, environment, started, pause, adopted, mask)
    except StartError as error:
        raise command_error(job[0], error.error) from error


def _never_raising(pause: Callable[[], float]) -> Callable[[], float | None]:
    """`pause`, until it fails once: the launcher waits for the job even if monitoring fails."""
    failed = False

    def careful() -> float | None:
        nonlocal failed
        seconds: float | None = None
        if not failed:
            failed = True
            with _one_line_for_an_error():
                seconds = pause()
                failed = False
        return seconds

    return careful


@contextlib.contextmanager
def _one_line_for_an_error() -> Iterator[None]:
    """The job has run: from here on, an internal error is one line on stderr and nothing else."""
    try:
        yield
    except PytracerError as error:
        say(str(error))
    except KeyboardInterrupt:
        say("interrupted; `pytracer inspect` makes the report again")
    except Exception as error:  # whatever it is, the job's status counts more
        say(f"the report failed: {type(error).__name__}: {error}; please report it")


def _conclude(
    run: run_directory.Run, ending: Ending, *, quiet: bool, report: bool, explain: bool, notify: bool
) -> bool:
    """Prints the outcome once the job has ended; returns whether there is anything to look at."""
    shown = _shown(run.directory)
    for line in _unrecorded(run.directory):
        say(line)
    boxes = sorted(run.boxes.glob("*" + run_directory.BOX_SUFFIX))
    if not boxes:
        say(
            f"{shown} holds no black box: no process of the job loaded the recorder (statically linked, set-uid, or "
            "an empty environment); run `pytracer doctor`"
        )
        return False
    died = ending.status != 0 or _any_crashed(boxes)
    # Ranks may have disagreed without an error: gloo completes such collectives with wrong data.
    # Guard mode may have found changed bytes beside a storage.
    if report and not ending.interrupted and (died or _ran_together(boxes) or _any_damage(boxes)):
        found = _report(run, ending, shown, died=died, quiet=quiet, explain=explain)
        if found is not None:
            with _one_line_for_an_error():
                tell(run.directory, found, configured=notify)
        return died or found is not None
    if died:
        with _one_line_for_an_error():
            _store_symbols(run)
        say(f"the job {ending.words}; `{shell_command('pytracer', 'inspect', shown)}` explains it")
    elif not quiet:
        say(f"recorded in {shown}")
    return died


def _store_symbols(run: run_directory.Run) -> None:
    """Names of native frames, while the images that ran are the ones on this machine: later they may not be."""
    from pytracer.decode.job.load import load_runs
    from pytracer.decode.symbols.stored import SYMBOLS_FILE, write_symbols

    write_symbols(load_runs(run.directory, light=True), run.directory / SYMBOLS_FILE)


def _write_digest(run: run_directory.Run, place: str) -> None:
    """Writes the digest in a process of its own, which is ended when it takes too long: the job's exit never waits."""

    def write() -> None:
        from pytracer.cli.digest import write_digest

        with _one_line_for_an_error():
            write_digest([run.directory], place, as_folder=True)

    if not any(run.boxes.glob("*" + run_directory.BOX_SUFFIX)):
        return
    writer = Background(set(), "no digest")
    if not writer.start(write):
        say("no digest: no further process can be started")
    elif not writer.finish(DIGEST_SECONDS):
        say(f"no digest: {place} took more than {DIGEST_SECONDS} s; `pytracer digest` writes it later")


def _tidy(run: run_directory.Run, boxes: str, *, clean: bool) -> None:
    """What the run leaves on the disk, and older runs beside it."""
    if boxes == "remove" and clean:
        _keep_report_only(run)
    elif boxes != "keep":
        shrink_boxes(run.directory)
    root = run.directory.parent
    if root.name != RUNS:
        return
    most_bytes = _budget()
    runs = find_runs(root) if most_bytes and space_of(root) > most_bytes else []
    gone = [found for found in over_budget(runs, most_bytes) if remove_run(found) is None]
    if gone:
        freed = size_words(sum(found.nbytes for found in gone))
        say(f"removed {count_words(len(gone), 'old run')}, {freed}: {_shown(root)} took more than {BUDGET_VARIABLE}")


def _keep_report_only(run: run_directory.Run) -> None:
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs
    from pytracer.render.json import render_json

    if not any(run.boxes.glob("*" + run_directory.BOX_SUFFIX)):
        return
    report = build_report(load_runs(run.directory, light=True))
    if report.verdict is None or report.verdict.class_ != "clean":
        return
    run_directory.write_text(run.directory / run_directory.REPORT_FILE, render_json(report))
    why = remove_boxes(run.directory)
    if why is not None:
        say(f"the recordings stay in {_shown(run.directory)}: {why}")


def _budget() -> int:
    """Bytes that the runs below runs/ may take; 0 for any number."""
    given = os.environ.get(BUDGET_VARIABLE)
    if not given:
        return BUDGET_BYTES
    try:
        return parse_size(given)
    except ValueError as error:
        say(f"{BUDGET_VARIABLE}: {error}; old runs stay")
        return 0


def _unrecorded(directory: Path) -> list[str]:
    """What the job's processes could not record; below a launcher they print nothing themselves."""
    from pytracer.decode.job.launcher import read_launchers
    from pytracer.decode.job.run_counters import read_run_counters
    from pytracer.decode.job.unseen import unseen_words

    witnesses = [launcher.witness for launcher in read_launchers(directory, []) if launcher.witness is not None]
    return [
        *(counters.line for counters in read_run_counters(directory) if counters.line is not None),
        *(unseen_words(item) for witness in witnesses for item in witness.unseen if item.torch),
    ]


def _report(
    run: run_directory.Run, ending: Ending, shown: str, *, died: bool, quiet: bool, explain: bool
) -> Report | None:
    """Prints the report, and stores it in the run directory with names of native frames; None if it has nothing new."""
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs
    from pytracer.decode.symbols.stored import SYMBOLS_FILE, write_symbols
    from pytracer.render.json import render_json
    from pytracer.render.style import decide_style
    from pytracer.render.text import render_text

    with progress_bar("Reading recordings") as progress:
        job = load_runs(run.directory, progress=progress, light=True)
        report = build_report(job)
    if not died and (report.verdict is None or report.verdict.class_ in ("clean", "unknown")):
        if not quiet:
            say(f"recorded in {shown}")
        return None
    with _one_line_for_an_error():
        run_directory.write_text(run.directory / run_directory.REPORT_FILE, render_json(report))
        write_symbols(job, run.directory / SYMBOLS_FILE)
    if _says_nothing_new(report, ending, shared=run.task is not None):
        say(f"the job {ending.words}, and nothing crashed; recorded in {shown}")
        return None
    style = decide_style("auto", sys.stderr, os.environ)
    show("\n" + render_text(report, style, explain=explain), styled=style.color, error=True)
    return report


def _says_nothing_new(report: Report, ending: Ending, *, shared: bool) -> bool:
    """Whether the report has nothing beyond the status of COMMAND, as after a `grep` without a match."""
    verdict = report.verdict
    if verdict is None or verdict.class_ == "clean":
        return True
    kinds = {process.status.kind for process in report.processes or () if process.status is not None}
    own = shared or verdict.pid == ending.pid
    return verdict.class_ == "unknown" and own and not kinds & {"signaled", "exception"}


def _ran_together(boxes: Sequence[Path]) -> bool:
    """Whether two processes or more ran collectives."""
    return sum(bool(header.collectives) for header in _headers(boxes)) > 1


def _any_crashed(boxes: Sequence[Path]) -> bool:
    """Whether any recording was last written by the crash handler."""
    from pytracer.blackbox.schema import State

    return any(bool(header.state == State.CRASHED) for header in _headers(boxes))


def _any_damage(boxes: Sequence[Path]) -> bool:
    """Whether guard mode found changed bytes beside a storage."""
    return any(bool(header.guard_damage) for header in _headers(boxes))


def _headers(boxes: Sequence[Path]) -> Iterator[structures.FileHeader]:
    """Headers of the readable recordings."""
    from pytracer.blackbox import codec, structures

    nbytes = codec.layout_of(structures.FileHeader).nbytes
    for path in boxes:
        with contextlib.suppress(OSError, ValueError, KeyError):
            with open(path, "rb") as file:
                data = file.read(nbytes)
            if len(data) == nbytes:
                yield codec.decode(structures.FileHeader, data)


def _shown(directory: Path) -> str:
    """A short path: relative if it is below the current directory."""
    try:
        return str(directory.relative_to(os.getcwd()))
    except (ValueError, OSError):
        return str(directory)
