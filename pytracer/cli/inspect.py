"""`pytracer inspect`: explains how a recorded job ended. Merges all ranks, applies the rules, prints."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from pytracer._errors import PytracerError, UsageError
from pytracer.cli.output import checked_output, write_aside
from pytracer.cli.reports import given_or_latest, read_digests, read_report, redacted, with_history
from pytracer.cli.selection import chosen_processes
from pytracer.cli.terminal import show, show_json, show_plain
from pytracer.render.style import COLOR_CHOICES
from pytracer.report.job import Verdict

EXIT_FOUND = 3
EXIT_RECOVERED = 4
EXIT_ADVICE = {"RESTART": 10, "RESTART_ELSEWHERE": 11, "STOP": 12, "UNKNOWN": 13}

EXAMPLES = """\b
Examples:
  pytracer inspect                          the newest run below runs/
  pytracer inspect runs/latest --all        every process, full stacks
  pytracer inspect --rank 3,5-7 --all       the full stacks of some ranks
  pytracer inspect --explain                and why it was nothing else
  pytracer inspect --checked                and every explanation that was looked at
  pytracer inspect runs/latest --json | jq .verdict
  pytracer inspect --markdown | gh issue create --title "training crashed" --body-file -
  pytracer inspect --html report.html       and a page for the browser
  pytracer inspect --redact --all -o for-the-vendor.txt
  pytracer inspect runs/latest --advise --json      for a scheduler: restart, restart elsewhere, or stop
  pytracer inspect runs/latest --attempt 0          the first attempt of a job that was restarted
  pytracer inspect --program mypackage              its lines are yours, though it is installed
  pytracer inspect --history s3://team/pytracer     has this been seen before, where, since when?
  pytracer inspect node3.4711.blackbox -o report.txt
  pytracer inspect node0/run node1/run --flight-recorder /tmp/dumps
  pytracer inspect s3://team/job-4711 --recordings /mnt/copied     a large job, from the digests of its nodes
"""


@click.command("inspect", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON (docs/reference/report.md).")
@click.option(
    "--markdown", "as_markdown", is_flag=True,
    help="Print at most 60 lines for an issue, redacted as by --redact (docs/guide/sharing.md).",
)  # fmt: skip
@click.option(
    "--html", "page", metavar="FILE",
    help="Also write the report to FILE as a page: memory and time as pictures (docs/guide/page.md).",
)  # fmt: skip
@click.option(
    "--redact", is_flag=True,
    help="Replace secrets, names of hosts and users, and directories, leave out memory contents, and count it all.",
)  # fmt: skip
@click.option("--rank", "ranks", metavar="RANKS", help="Show these ranks only, and what they started: 3 or 3,5-7.")
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True, help="Show the processes of this host; may be repeated."
)
@click.option("--all", "everything", is_flag=True, help="Show every process and full stacks.")
@click.option("--explain", is_flag=True, help="Show why other explanations were refused, the most plausible first.")
@click.option("--checked", is_flag=True, help="Show every rule that did not fire, and why.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout; - is stdout.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--color", type=click.Choice(COLOR_CHOICES), default="auto", show_default=True, help="Colour the text.")
@click.option(
    "--flight-recorder", "dumps", metavar="PATH", multiple=True, type=click.Path(path_type=Path),
    help="Also read a dump of torch's Flight Recorder, or a directory of dumps; may be repeated.",
)  # fmt: skip
@click.option(
    "--recordings", metavar="DIR|URL", multiple=True,
    help="Of digests: where the recordings of suspects may be; may be repeated.",
)  # fmt: skip
@click.option(
    "--attempt", metavar="N", type=click.IntRange(min=-1),
    help="Of a job that torchrun restarted, report on attempt N alone, from 0; -1 is the last one.",
)  # fmt: skip
@click.option(
    "--history", "store", metavar="URL",
    help="Also show whether such a death is in this store of `pytracer history`.",
)  # fmt: skip
@click.option(
    "--program", "program", metavar="PACKAGE", multiple=True,
    help="Count an installed package as the program's own: its lines are told like yours; may be repeated.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Of a bundle, analyze its recordings with this version of pytracer.")
@click.option(
    "--advise", "advised", is_flag=True,
    help="Print only whether to start the job again: RESTART, RESTART_ELSEWHERE, STOP or UNKNOWN "
    "(docs/guide/schedulers.md).",
)  # fmt: skip
@click.option(
    "--exit-code", "exit_code", is_flag=True,
    help="Exit with status 3 if a death was found, with 4 if the job recovered from all of them by restarts; with "
    "--advise, 10 to 13 in the order above.",
)  # fmt: skip
def command(
    runs: tuple[str, ...],
    as_json: bool,
    as_markdown: bool,
    page: str | None,
    redact: bool,
    ranks: str | None,
    hosts: tuple[str, ...],
    everything: bool,
    explain: bool,
    checked: bool,
    output: str | None,
    force: bool,
    color: str,
    dumps: tuple[Path, ...],
    recordings: tuple[str, ...],
    attempt: int | None,
    store: str | None,
    program: tuple[str, ...],
    again: bool,
    advised: bool,
    exit_code: bool,
) -> int:
    """Explain how a recorded job ended: which process died first, where, what memory it touched, and why.

    RUN is a run directory, a directory of recordings, one recording (*.blackbox), or a bundle of `pytracer pack`;
    default: runs/latest. For a job on several hosts, give the run directories of all of them, or the digests that
    `pytracer digest` made of them, or the folder or URL of these (docs/guide/digests.md).
    """
    import msgspec

    from pytracer.decode.job.digest_names import are_digests
    from pytracer.render.advice import render_advice
    from pytracer.render.json import render_json
    from pytracer.render.markdown import render_markdown
    from pytracer.render.style import Style, decide_style, decide_width
    from pytracer.render.text import render_text

    if as_markdown and (as_json or advised):
        raise UsageError(f"{'--json' if as_json else '--advise'} and --markdown exclude each other", "choose one")
    target = checked_output(output, force)
    page_target = _checked_page(page, force)
    if are_digests(runs):
        report = read_digests(runs, recordings, attempt, dumps, progress=not as_json)
    else:
        if recordings:
            raise UsageError("--recordings goes with digests", "name a folder of digests, or leave it out")
        named = given_or_latest([Path(run) for run in runs])
        report = read_report(named, dumps, attempt, progress=not as_json, again=again, program=program)
    chosen = chosen_processes(report, ranks, hosts)
    if store is not None:
        report = with_history(report, store)
    if redact or as_markdown:
        report = redacted(report)
    part = [(report.processes or [])[position] for position in chosen] if chosen is not None else None
    if page_target is not None:
        from pytracer.render.html.page import render_html

        write_aside(page_target, render_html(report))
    style = decide_style(color, sys.stdout, os.environ)
    status = _status(report.verdict)
    if advised:
        from pytracer.analyze.advice import advise

        advice = advise(report)
        status = EXIT_ADVICE[advice.advice or "UNKNOWN"]
        text = render_json(advice) if as_json else render_advice(advice)
    elif as_json:
        text = render_json(report if part is None else msgspec.structs.replace(report, processes=part))
    elif as_markdown:
        text = render_markdown(report)
    else:
        if target is not None:
            style = Style(color == "always", decide_width(False, os.environ))
        text = render_text(report, style, everything=everything, explain=explain, checked=checked, processes=part)
    if target is not None:
        write_aside(target, text)
    elif as_json:
        show_json(text)
    elif as_markdown:
        show_plain(text)
    else:
        show(text, styled=style.color)
    return status if exit_code else 0


def _status(verdict: Verdict | None) -> int:
    found = verdict.class_ if verdict is not None else "clean"
    return {"clean": 0, "recovered": EXIT_RECOVERED}.get(found or "unknown", EXIT_FOUND)


def _checked_page(page: str | None, force: bool) -> Path | None:
    """The file of `--html`. Fails early, before a long merge.

    Raises:
        UsageError: it exists and `force` was not given, or cannot be one.
        PytracerError: jinja2 is missing.
    """
    if page is None:
        return None
    if page == "-":
        raise UsageError("--html needs the name of a file", "name one: pytracer inspect RUN --html report.html")
    if find_spec("jinja2") is None:
        raise PytracerError("--html needs jinja2, which is not installed", "pip install 'pytracer[html]'")
    return checked_output(page, force, "--html")
