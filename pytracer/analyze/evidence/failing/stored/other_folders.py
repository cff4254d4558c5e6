"""A relative path that leads to something from another folder than the current one: the line that changed that."""

from __future__ import annotations

import ast
import os

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.slicing.written_files import place_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords


def in_other_folder(at: FailingLine) -> str | None:
    """What to do: the recorder found the file by the same path from the other folder."""
    path, there = at.values.get("file"), at.values.get("file in folder")
    if path is None or there is None:
        return None
    changed = _change(at)
    if changed is None:
        return (
            f"'{path}' is there below {there}. Start the job in that folder, or make the path absolute: build it from "
            "Path(__file__).resolve().parent, or give it as an absolute one."
        )
    place, call, surely = changed
    if not surely:
        return (
            f"'{path}' is there below {there}. If {place} (`{source(call)}`) had run, make such paths absolute before "
            "that line (os.path.abspath()); if not, start the job in that folder."
        )
    return (
        f"'{path}' is there below {there}, and {place} (`{source(call)}`) changes the current folder. Make such paths "
        f"absolute before that line (os.path.abspath()), or do without it and join the paths of what is written."
    )


def other_folder_subject(at: FailingLine) -> str | None:
    """For the headline."""
    there, here = at.values.get("file in folder"), at.values.get("file current folder")
    if there is None or here is None:
        return None
    changed = _change(at)
    if changed is None:
        return f"the path is relative: {there} has it, and the current folder is {here}"
    if not changed[2]:
        return (
            f"the path is relative: {there} has it, and the current folder is {here}, to which {changed[0]} "
            f"(`{source(changed[1])}`) may have changed"
        )
    return f"{changed[0]} changes the current folder, and the path is relative to {there}, where the file is"


def _change(at: FailingLine) -> tuple[LineWords, ast.Call, bool] | None:
    """The only call of os.chdir() in the program, where the process is not in the folder of its start.

    And whether it leads there for sure: who starts a process in a folder of its own (subprocess, `make -C`) leaves PWD.
    """
    if "file folder left" not in at.values:
        return None
    calls = [
        (file, tree, call)
        for file, tree in at.files.items()
        for call in nodes_of(tree)
        if isinstance(call, ast.Call) and called_name(call) == "chdir" and call.args
    ]
    if len(calls) != 1:
        return None
    file, tree, call = calls[0]
    parts = path_parts(at.slice, call.args[0], place_of(at.files, file, tree, call))
    last = parts[-1] if parts else ""
    shown = last not in ("", "..", "~") and "{" not in last
    if shown and last != os.path.basename(at.values.get("file current folder", "")):
        return None  # it leads elsewhere
    return at.in_file(file, call.lineno), call, shown
