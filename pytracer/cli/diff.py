"""`pytracer diff`: how a run that failed differs from one that did not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pytracer.cli.reports import read_report, redacted
from pytracer.cli.terminal import show, show_json
from pytracer.render.style import COLOR_CHOICES

EXAMPLES = """\b
Examples:
  pytracer diff runs/good runs/latest
  pytracer diff good.pytracer bad.pytracer --json | jq '.differences[] | select(.topic == "environment")'
"""


@click.command("diff", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("a", metavar="A", type=click.Path(path_type=Path))
@click.argument("b", metavar="B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--redact", is_flag=True, help="Replace what is private, as `inspect --redact` does.")
@click.option("--color", type=click.Choice(COLOR_CHOICES), default="auto", show_default=True, help="Colour the text.")
def command(a: Path, b: Path, as_json: bool, redact: bool, color: str) -> None:
    """Show what differs between two runs: versions, environment, libraries, collectives, memory.

    A and B are as RUN for `pytracer inspect`, bundles included. Ranks are compared with their namesakes. Memory is
    different when it differs by 10 % and 16 MiB. Ids of jobs, ports and addresses are not compared; libraries are, of
    processes that crashed in both runs.
    """
    from pytracer.analyze.difference import compare_reports
    from pytracer.render.difference import render_difference
    from pytracer.render.json import render_json
    from pytracer.render.style import decide_style

    reports = [read_report([path], progress=not as_json) for path in (a, b)]
    if redact:
        reports = [redacted(report) for report in reports]
    found = compare_reports(*reports)
    if as_json:
        show_json(render_json(found))
    else:
        style = decide_style(color, sys.stdout, os.environ)
        show(render_difference(found, style), styled=style.color)
