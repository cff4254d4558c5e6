"""What `pytracer run` does when its job has ended: the report, its symbols, the digest, and what stays on the disk."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._paths import RUNS
from pytracer._printable import shell_command
from pytracer._text import count_words, size_words
from pytracer.cli.background import Background
from pytracer.cli.digest import SECONDS as DIGEST_SECONDS
from pytracer.cli.notify import tell
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import one_line_for_an_error, say, show
from pytracer.launcher import run_directory
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
from pytracer.launcher.slurm_state import slurm_state
from pytracer.launcher.supervise import Ending

if TYPE_CHECKING:
    from pytracer.blackbox import structures
    from pytracer.report.job import Report

_MOST_ASKED, _ASKED_SECONDS = 64, 2.0


def ask_what_still_runs(run: run_directory.Run) -> None:
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


def ask_slurm(run: run_directory.Run, record: dict[str, object]) -> None:
    """Completes the record by what Slurm knows of a step that it may have ended."""
    state = slurm_state(os.environ)
    if state is not None:
        record["slurm"] = state
        run_directory.write_record(run, record)


def conclude_run(
    run: run_directory.Run, ending: Ending, *, quiet: bool, report: bool, explain: bool, notify: bool
) -> bool:
    """Prints the outcome once the job has ended; returns whether there is anything to look at."""
    shown = shown_path(run.directory)
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
            with one_line_for_an_error():
                tell(run.directory, found, configured=notify)
        return died or found is not None
    if died:
        with one_line_for_an_error():
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


def write_digest_of(run: run_directory.Run, place: str) -> None:
    """Writes the digest in a process of its own, which is ended when it takes too long: the job's exit never waits."""

    def write() -> None:
        from pytracer.cli.digest import write_digest

        with one_line_for_an_error():
            write_digest([run.directory], place, as_folder=True)

    if not any(run.boxes.glob("*" + run_directory.BOX_SUFFIX)):
        return
    writer = Background(set(), "no digest")
    if not writer.start(write):
        say("no digest: no further process can be started")
    elif not writer.finish(DIGEST_SECONDS):
        say(f"no digest: {place} took more than {DIGEST_SECONDS} s; `pytracer digest` writes it later")


def tidy(run: run_directory.Run, boxes: str, *, clean: bool) -> None:
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
        say(
            f"removed {count_words(len(gone), 'old run')}, {freed}: {shown_path(root)} took more than {BUDGET_VARIABLE}"
        )


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
        say(f"the recordings stay in {shown_path(run.directory)}: {why}")


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
    with one_line_for_an_error():
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


def shown_path(directory: Path) -> str:
    """A short path: relative if it is below the current directory."""
    try:
        return str(directory.relative_to(os.getcwd()))
    except (ValueError, OSError):
        return str(directory)
