"""`pytracer export`: a recorded job in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from pytracer._errors import InputError, UsageError
from pytracer.cli.output import checked_output, write_aside
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import say

EXAMPLES = """\b
Examples:
  pytracer export runs/latest --perfetto trace.json.gz      open it in ui.perfetto.dev
  pytracer export runs/latest --memory-viz rank1.pickle --rank 1
"""


@click.command("export", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--perfetto", metavar="FILE",
    help="Write a trace for ui.perfetto.dev and trace_processor; FILE.gz is compressed.",
)  # fmt: skip
@click.option(
    "--memory-viz", metavar="FILE",
    help="Write the CPU storages of one rank as a memory snapshot for pytorch.org/memory_viz.",
)  # fmt: skip
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="With --memory-viz: of this rank.  [default: 0]")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def command(runs: tuple[Path, ...], perfetto: str | None, memory_viz: str | None, rank: int | None, force: bool) -> int:
    """Write a recorded job in the formats of other tools (docs/guide/export.md).

    RUN is as for `pytracer inspect`. The trace has a group of tracks for each process: its collectives, with arrows
    from the rank that entered first to the one that entered last; its steps; its threads; and the bytes of its
    CPU storages.
    """
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs

    if perfetto is None and memory_viz is None:
        raise UsageError("no format was given", hint="name one: --perfetto FILE or --memory-viz FILE")
    if rank is not None and memory_viz is None:
        raise UsageError("--rank is for --memory-viz", hint="a trace has all ranks")
    trace = checked_output(perfetto, force, "--perfetto")
    snapshot = checked_output(memory_viz, force, "--memory-viz")
    if "-" in (perfetto, memory_viz):
        raise UsageError("an export is no text for stdout", hint="name a FILE")
    with progress_bar("Reading recordings") as progress:
        job = load_runs(list(runs), progress=progress)
        if trace is not None:
            from pytracer.export.perfetto import perfetto_trace

            content = perfetto_trace(job, build_report(job), compressed=trace.suffix == ".gz")
    if trace is not None:
        write_aside(trace, content)
        say(f"{trace}: open it in https://ui.perfetto.dev")
    if snapshot is not None:
        from pytracer.export.memory_viz import memory_snapshot

        found = next((process for process in job.ranks if process.rank == (rank or 0)), None)
        if found is None:
            raise InputError(f"the run has no rank {rank or 0}", hint="choose another one with --rank")
        write_aside(snapshot, memory_snapshot(found.snapshot))
        say(f"{snapshot}: open it in https://pytorch.org/memory_viz; CPU storages appear as those of device 0")
    return 0
