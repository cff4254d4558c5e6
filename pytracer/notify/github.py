"""GitHub Actions: an error annotation at the line that crashed, and the report in the step's summary.

Both are files and lines of the runner's: workflow commands on an output stream, and $GITHUB_STEP_SUMMARY.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pytracer.notify.message import Frame, Message
from pytracer.render.markdown import render_markdown
from pytracer.report.job import Report

_MOST_BYTES = 1 << 20  # of a step's summary; the runner refuses more


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether this is a step of a workflow."""
    return environ.get("GITHUB_ACTIONS") == "true"


def annotation(message: Message, place: Frame | None, environ: Mapping[str, str]) -> str:
    """The workflow command: an error, or a notice when nothing died. `place` has its whole path."""
    properties = {"title": f"pytracer: {message.class_}"}
    if place is not None and place.file is not None and (file := _in_workspace(place.file, environ)):
        properties = {"file": file, "line": str(place.line), **properties}
    words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    text = f"{message.title} {message.advice}" if message.advice else message.title
    return f"::{'error' if message.died else 'notice'} {words}::{_data(text)}\n"


def write_summary(report: Report, environ: Mapping[str, str]) -> str | None:
    """Appends the report as Markdown to the step's summary; its path, None outside of a step."""
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return None
    text = "### pytracer\n\n" + render_markdown(report)
    with open(path, "a", encoding="utf-8") as file:
        if file.tell() + len(text.encode()) <= _MOST_BYTES:
            file.write(text)
    return path


def _in_workspace(file: str, environ: Mapping[str, str]) -> str | None:
    """The path in the repository, which is what the runner can annotate."""
    if not os.path.isabs(file):
        return file
    workspace = environ.get("GITHUB_WORKSPACE")
    inside = workspace is not None and os.path.commonpath([file, workspace]) == os.path.normpath(workspace)
    return os.path.relpath(file, workspace) if inside else None


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
