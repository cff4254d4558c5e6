"""Recordings of released versions: unpacked, and read by today's reader."""

from __future__ import annotations

import errno
import json
import tarfile
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from pytracer.analyze import parts
from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.decode.symbols import image_symbols, symbolize
from pytracer.render.json import render_json

GOLDEN = Path(__file__).resolve().parent


def _absent(path: str, *_: object, **__: object) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, "not on this machine", path)


def unpacked(archive: Path, into: Path) -> Path:
    """The run directory in an archive."""
    with tarfile.open(archive) as file:
        file.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.xz")


def report_of(run: Path) -> str:
    """The report as JSON, one key per line, without the directory that it was read from.

    As on a machine without the images and data: files at their paths here are other versions or do not exist.
    """
    without_images = (
        patch.object(symbolize, "regular_file", _absent),
        patch.object(image_symbols, "regular_file", _absent),
    )
    with without_images[0], without_images[1], patch.object(parts, "file_size_now", lambda _: None):
        text = render_json(build_report(load_job(run)))
    return json.dumps(json.loads(text.replace(str(run), "RUN")), indent=1, ensure_ascii=True) + "\n"
