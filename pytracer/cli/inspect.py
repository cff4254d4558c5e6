"""`pytracer inspect`: explains how a recorded job ended. Merges all ranks, applies the rules, prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pytracer._errors import UsageError
from pytracer.cli.output import checked_output, write_aside
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import show, show_json
from pytracer.render.style import COLOR_CHOICES

EXIT_FOUND = 3
EXIT_RECOVERED = 4
LATEST = Path("runs/latest")

EXAMPLES = """\b
Examples:
  pytracer inspect                          the newest run below runs/
  pytracer inspect runs/latest --all        every process, full stacks
  pytracer inspect --explain                and why it was nothing else
  pytracer inspect runs/latest --json | jq .verdict
  pytracer inspect runs/latest --attempt 0          the first attempt of a job that was restarted
  pytracer inspect node3.4711.blackbox -o report.txt
  pytracer inspect node0/run node1/run --flight-recorder /tmp/dumps
"""


@click.command("inspect", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON (docs/reference/report.md).")
@click.option("--all", "everything", is_flag=True, help="Show every process and full stacks.")
@click.option("--explain", is_flag=True, help="Show why other explanations were refused, the most plausible first.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout; - is stdout.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--color", type=click.Choice(COLOR_CHOICES), default="auto", show_default=True, help="Colour the text.")
@click.option(
    "--flight-recorder", "dumps", metavar="PATH", multiple=True, type=click.Path(path_type=Path),
    help="Also read a dump of torch's Flight Recorder, or a directory of dumps; may be repeated.",
)  # fmt: skip
@click.option(
    "--attempt", metavar="N", type=click.IntRange(min=-1),
    help="Of a job that torchrun restarted, report on attempt N alone, from 0; -1 is the last one.",
)  # fmt: skip
@click.option(
    "--exit-code", "exit_code", is_flag=True,
    help="Exit with status 3 if a death was found, with 4 if the job recovered from all of them by restarts.",
)  # fmt: skip
def command(
    runs: tuple[Path, ...],
    as_json: bool,
    everything: bool,
    explain: bool,
    output: str | None,
    force: bool,
    color: str,
    dumps: tuple[Path, ...],
    attempt: int | None,
    exit_code: bool,
) -> int:
    """Explain how a recorded job ended: which process died first, where, what memory it touched, and why.

    RUN is a run directory, a directory of recordings, or one recording (*.blackbox); default: runs/latest. For a job on
    several hosts, give the run directories of all of them.
    """
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs
    from pytracer.render.json import render_json
    from pytracer.render.style import Style, decide_style
    from pytracer.render.text import render_text

    target = checked_output(output, force)
    with progress_bar("Reading recordings", wanted=not as_json) as progress:
        job = load_runs(_given_or_latest(runs), dumps, progress, light=True)
    report = build_report(job, attempt)
    if as_json:
        text = render_json(report)
    else:
        style = decide_style(color, sys.stdout, os.environ) if target is None else Style(color == "always")
        text = render_text(report, style, everything=everything, explain=explain)
    if target is not None:
        write_aside(target, text)
    elif as_json:
        show_json(text)
    else:
        show(text, styled=style.color)
    found = report.verdict.class_ if report.verdict is not None else "clean"
    return {"clean": 0, "recovered": EXIT_RECOVERED}.get(found or "unknown", EXIT_FOUND) if exit_code else 0


def _given_or_latest(runs: Sequence[Path]) -> Sequence[Path]:
    if runs:
        return runs
    if not LATEST.exists():
        raise UsageError(
            "no RUN was given and there is no runs/latest here", hint="name the run directory: pytracer inspect RUN"
        )
    return [LATEST]
