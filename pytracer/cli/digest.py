"""`pytracer digest`: one small file of a node's recordings, for `pytracer inspect` of a large job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from pytracer._printable import one_line, shell_command
from pytracer._text import count_words, size_words
from pytracer.cli.progress import progress_bar
from pytracer.cli.reports import given_or_latest
from pytracer.cli.terminal import say, show

EXAMPLES = """\b
Examples:
  pytracer digest -o /shared/job-4711                  the newest run of this node, into that folder
  pytracer digest runs/tuesday -o node7.digest         into one file
  pytracer digest runs/latest -o s3://team/job-4711    as one object; needs pytracer[digest] and s3fs
  pytracer run --digest s3://team/job-4711 -- torchrun ... train.py      by the launcher, at the end of the job
  pytracer inspect s3://team/job-4711                  the report of the whole job
"""
SECONDS = 30  # that the launcher waits for one


@click.command("digest", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="FILE|FOLDER|URL", required=True,
    help="Where it is written: a file if the name ends with .digest, else a folder, in which each node and each run "
    "has a file of its own.",
)  # fmt: skip
def command(runs: tuple[Path, ...], output: str) -> None:
    """Write what a report needs of this node's recordings into one file of at most 8 KB for each rank.

    `pytracer inspect` merges the digests of all nodes of a job (docs/guide/digests.md). The recordings stay where they
    are. RUN is as for `pytracer inspect`, also of a job that is still running; default: runs/latest.
    """
    with progress_bar("Reading recordings") as progress:
        place, nbytes, ranks = write_digest(given_or_latest(runs), output, progress=progress)
    show(one_line(f"{place}: {size_words(nbytes)}, {count_words(ranks, 'rank')}") + "\n")
    say(f"`{shell_command('pytracer', 'inspect', output)}` reads it, with those of the other nodes")


def write_digest(
    runs: Sequence[Path],
    place: str,
    *,
    as_folder: bool = False,
    named: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[str, int, int]:
    """Writes the digest of run directories; the place, its bytes, and the number of ranks in it.

    Args:
        runs: run directories of this node.
        place: of a file, if it ends with .digest; else a folder. A path or a URL.
        as_folder: it is a folder in any case.
        named: the run directory that it is named for: recordings may lie elsewhere while the job runs.
        progress: called for each recording.

    Raises:
        InputError: there is nothing to read, or nobody knows the URL.
        PytracerError: it cannot be written.
    """
    from pytracer._objects import joined, write_whole
    from pytracer.analyze.digest import digest_name, make_digest, most_bytes
    from pytracer.decode.job.digest_names import SUFFIX
    from pytracer.decode.job.load import load_runs

    job = load_runs(runs, (), progress, light=True)
    content = make_digest(job)
    if len(content) > most_bytes(job):
        words = f"{size_words(len(content))} instead of {size_words(most_bytes(job))}"
        say(f"the digest is larger than 8 KB for each rank: {words}; nothing more can be left out")
    if as_folder or not place.endswith(SUFFIX):
        place = joined(place, digest_name(job, named))
    write_whole(place, content)
    return place, len(content), len(job.ranks)
