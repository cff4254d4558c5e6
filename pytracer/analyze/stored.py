"""Reports that were stored where the job ran: of a bundle, or of a clean run whose recordings were not kept."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pytracer._errors import InputError
from pytracer.decode.files import read_regular
from pytracer.decode.formats.bundle import is_bundle, read_bundle
from pytracer.report import job as r

REPORT_FILE = "report.json"
_LARGEST = 256 << 20


def stored_report(path: str | os.PathLike[str]) -> r.Report | None:
    """The report of a bundle, or of a run directory without recordings; None where recordings are to be read.

    A bundle's report has what only the machine of the job could resolve: names and lines of native frames, symbols
    at addresses, quoted lines of source. So it is the same on every machine.

    Raises:
        InputError: the bundle, or the report in it, cannot be read.
    """
    if is_bundle(path):
        bundle = read_bundle(path)
        return _located(_decoded(bundle.report, os.fspath(path)), path)
    if not os.path.isdir(path) or _has_recordings(Path(path)):
        return None
    try:
        content = read_regular(Path(path) / REPORT_FILE, _LARGEST)
    except OSError:  # as of any directory without recordings: `load_runs` reports it
        return None
    return _located(_decoded(content, os.path.join(path, REPORT_FILE)), path)


def _has_recordings(directory: Path) -> bool:
    return any(next(folder.glob("*.blackbox"), None) is not None for folder in (directory, directory / "boxes"))


def _located(report: r.Report, path: str | os.PathLike[str]) -> r.Report:
    """The report says where it was read, so that the commands it suggests work here."""
    run = msgspec.structs.replace(report.run or r.Run(), directory=os.path.realpath(path), directories=None)
    return msgspec.structs.replace(report, run=run)


def _decoded(content: bytes, name: str) -> r.Report:
    try:
        report = msgspec.json.decode(content, type=r.Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name} holds a report that cannot be read: {error}", "ask for another one") from None
    if report.schema != r.SCHEMA or report.version > r.VERSION:
        raise InputError(f"{name} holds a report of version {report.version}", "install a newer pytracer to read it")
    return report
