"""`pytracer run`: starts a command with the recorder preloaded, waits, and explains a death.

The job must not notice the launcher (`launcher/supervise.py`). While it runs, the launcher samples it from outside
every two seconds (`run_job.py`, `job_monitor.py`); when it has ended, `run_end.py` reports. Errors in reporting never
change the returned status.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from pytracer._errors import UsageError
from pytracer.blackbox.numbers import LEVELS
from pytracer.cli.deaths import DeathWatch
from pytracer.cli.digest import SECONDS as DIGEST_SECONDS
from pytracer.cli.hangs import ACTIONS, SPEED_VARIABLE, HangAction, HangSettings, speed_of
from pytracer.cli.notify import check_configured
from pytracer.cli.run_end import ask_slurm, ask_what_still_runs, conclude_run, shown_path, tidy, write_digest_of
from pytracer.cli.run_job import MonitoredJob, end_like, supervise_command
from pytracer.cli.run_programs import find_program
from pytracer.cli.task_end import conclude_task
from pytracer.cli.terminal import one_line_for_an_error, say
from pytracer.launcher import run_directory
from pytracer.launcher.gpu_core import gpu_core_variables
from pytracer.launcher.shared_run import WAIT_SECONDS, join_run
from pytracer.launcher.supervise import FORWARDED
from pytracer.launcher.task import task_of
from pytracer.record.guard_mode import ALL, VARIABLE, parse_guard

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
        deaths = DeathWatch(shown_path(run.directory), lines=not no_death_lines, command=on_death)
        hang = HangSettings(hang_action, hang_timeout, quiet, speed_of(os.environ.get(SPEED_VARIABLE)), digest)
        monitored = MonitoredJob(run, record, hang, deaths)
    except UsageError:
        raise
    except Exception as error:  # a full disk, an internal error: the command runs unrecorded
        say(f"COMMAND runs unrecorded: {error}")
        return end_like(supervise_command(program, job, run_directory.given_environment()))
    for note in notes:
        say(note)
    # Who signals all processes one after the other may reach this one when the job has ended: its status counts then,
    # to the very end of this process, and only Ctrl-C ends the report.
    mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED))
    ending = monitored.run_job(program, job, environment, subreaper, mask)
    record["ended_mono_ns"] = time.monotonic_ns()
    record["exit_code"], record["signal"], record["usage"] = ending.exit_code, ending.signal, ending.usage
    with one_line_for_an_error():
        if ending.status != 0 and not ending.interrupted and run.task is None:
            with one_line_for_an_error():
                ask_what_still_runs(run)
        with one_line_for_an_error():
            run = run_directory.collect_boxes(run)
            for note in run.notes:
                say(note)
        with one_line_for_an_error():
            run_directory.write_record(run, record)
        if not ending.interrupted:
            with one_line_for_an_error():
                deaths.at_the_end(run, monitored.ended)

        def conclude() -> None:
            if ending.status != 0:
                with one_line_for_an_error():
                    ask_slurm(run, record)
            if digest is not None:
                write_digest_of(run, digest)
            failed = conclude_run(run, ending, quiet=quiet, report=not no_report, explain=explain, notify=notify)
            with one_line_for_an_error():
                tidy(run, boxes, clean=not failed and ending.status == 0)

        if run.task is None:
            conclude()
        else:
            conclude_task(run, run.task, ending, shown_path(run.directory), task_wait, conclude=conclude)
    return end_like(ending)
