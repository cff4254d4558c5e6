"""`pytracer where`: explains any address of a recorded process in terms of the training program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import show, show_json
from pytracer.render.style import COLOR_CHOICES

EXAMPLES = """\b
Examples:
  pytracer where runs/latest 0x7fd788790040         in the process of the verdict
  pytracer where runs/latest 0x7fd788790040 --rank 0
  pytracer where runs/latest fault rdi stack+0x18   the fault address, a register, a word of the stack
  pytracer where node3.4711.blackbox rip-0x10 --json | jq .addresses[0].says
"""


@click.command("where", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("addresses", metavar="ADDR...", nargs=-1, required=True)
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Explain addresses of this rank.")
@click.option("--pid", type=click.IntRange(min=1), metavar="P", help="Explain addresses of this process.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON (docs/reference/report.md).")
@click.option("--color", type=click.Choice(COLOR_CHOICES), default="auto", show_default=True, help="Colour the text.")
def command(
    run: Path, addresses: tuple[str, ...], rank: int | None, pid: int | None, as_json: bool, color: str
) -> None:
    """Explain addresses: the storage, its names, its allocation and free, its neighbours and predecessors.

    RUN is a run directory, a directory of recordings, or one recording. ADDR is 0x7f..., a decimal number, a
    register of the crashed thread (rdi, rip, pc, sp), a register with an offset (rdi+0x18), a word of its stack
    (stack+0x18), or `fault`, the address of the memory fault. Addresses belong to one process: by default the one
    in the verdict of `pytracer inspect`; choose another with --rank or --pid.
    """
    from pytracer.analyze.where import explain_addresses
    from pytracer.decode.job.load import load_runs
    from pytracer.render.json import render_json
    from pytracer.render.style import decide_style
    from pytracer.render.where import render_where

    with progress_bar("Reading recordings", wanted=not as_json) as progress:
        job = load_runs(run, progress=progress, light=True)
        report = explain_addresses(job, addresses, rank=rank, pid=pid)
    if as_json:
        show_json(render_json(report))
    else:
        style = decide_style(color, sys.stdout, os.environ)
        show(render_where(report, style), styled=style.color)
