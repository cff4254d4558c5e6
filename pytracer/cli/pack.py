"""`pytracer pack`: one file with everything that is needed to read a run on another machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import click

from pytracer._errors import PytracerError, UsageError
from pytracer._printable import one_line, shell_command
from pytracer._text import count_words, size_words
from pytracer._version import __version__
from pytracer.cli.output import checked_output
from pytracer.cli.progress import progress_bar
from pytracer.cli.reports import given_or_latest, redacted
from pytracer.cli.terminal import say, show

EXAMPLES = """\b
Examples:
  pytracer pack                                   the newest run, into <its name>.pytracer
  pytracer pack runs/tuesday --sources -o tuesday.pytracer
  pytracer pack runs/latest --redact              the redacted report alone, for people outside
  pytracer inspect tuesday.pytracer --all         on any machine: no torch, no sources, no libraries needed
"""


@click.command("pack", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", help="Write FILE.  [default: the run's name and .pytracer]")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--sources", is_flag=True, help="Include five lines of source on each side of every frame.")
@click.option(
    "--redact", is_flag=True,
    help="Include the redacted report instead of the recordings, in which nothing can be redacted.",
)  # fmt: skip
def command(run: Path | None, output: str | None, force: bool, sources: bool, redact: bool) -> None:
    """Write a run into one file, a bundle, that `pytracer inspect` reads on any machine (docs/guide/sharing.md).

    A bundle has the compressed recordings and the report as it is here, with the names of native functions and the
    lines that only this machine can resolve. RUN is as for `pytracer inspect`; default: runs/latest.
    """
    from pytracer.analyze.engine import build_report
    from pytracer.analyze.sources import with_sources
    from pytracer.decode.formats.bundle import SUFFIX, is_bundle, run_files, write_bundle
    from pytracer.decode.job.load import load_runs
    from pytracer.decode.symbols.stored import SYMBOLS_FILE, symbols_of
    from pytracer.render.json import json_text
    from pytracer.render.text import removed_words

    (given,) = given_or_latest([run] if run is not None else [])
    if is_bundle(given):
        raise UsageError(f"{given} is a bundle already", "pack the run directory that it was made of")
    if not given.is_dir():
        raise UsageError(f"{given} is no run directory", "name one, e.g. runs/latest")
    default = f"{os.path.basename(os.path.realpath(given))}{SUFFIX}"
    target = checked_output(output or default, force)
    if target is None:
        raise UsageError("a bundle is no text for stdout", "name a FILE")
    if target.exists() and not target.is_file():  # /dev/null, a pipe: never replaced
        raise UsageError(f"{target} is no regular file", "choose another -o FILE")
    with progress_bar("Reading recordings") as progress:
        job = load_runs(given, (), progress, light=True)
        report = build_report(job)
    missing = 0
    if sources:
        report, missing = with_sources(report)
    manifest: dict[str, object] = {"pytracer": __version__, "redacted": redact}
    manifest["packed"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    files: list[tuple[str, Path | bytes]] = []
    if redact:
        report = redacted(report)
    else:
        files = [*run_files(Path(os.path.realpath(given))), (SYMBOLS_FILE, symbols_of(job)[1])]
    with _aside(target) as aside:
        write_bundle(aside, json_text(report).encode(), manifest, files)
        nbytes = os.stat(aside).st_size
    left_out = f"; {count_words(missing, 'line')} of source not found, or newer than the run" if missing else ""
    content = (
        f"its report, redacted: {removed_words(report.removed)}" if report.removed is not None else "its recordings"
    )
    show(one_line(f"{target}: {size_words(nbytes)}, the run with {content}{left_out}") + "\n")
    say(f"read it anywhere with `{shell_command('pytracer', 'inspect', str(target))}`")


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[str]:
    """A temporary file that takes the place of `path`, unless writing it fails.

    Raises:
        PytracerError: it cannot be written.
    """
    aside = ""
    try:
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # readable by this user only
        os.close(descriptor)
        yield aside
        os.replace(aside, path)
    except OSError as error:
        raise PytracerError(f"{path} cannot be written: {error.strerror or error}", "choose another -o FILE") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(aside)
