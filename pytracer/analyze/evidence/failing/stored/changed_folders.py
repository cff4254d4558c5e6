"""A relative path that is not found, in a program that changes the folder in which such paths are looked for."""

from __future__ import annotations

import ast

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_MOST = 2


def changed_folder(at: FailingLine) -> str | None:
    """The lines that change it, where the current one is empty: the file may be nowhere as well."""
    path, folder = at.values.get("file"), at.values.get("file folder")
    if at.kind != "FileNotFoundError" or path is None or path.startswith(("/", "~")) or folder not in (None, "", "."):
        return None
    if at.values.get("file folder entries") != "0":
        return None
    calls = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == "chdir"
    ]
    if not 0 < len(calls) <= _MOST:
        return None
    lines = list_words([f"{at.in_file(file, item.lineno)} (`{short(source(item))}`)" for file, item in calls])
    many = len(calls) > 1
    before, change = ("these lines", "change") if many else ("that line", "changes")
    return (
        f"The current folder is empty: {lines} {change} it, and the path '{path}' is relative. If it "
        f"is meant from the folder before, make it absolute before {before} (os.path.abspath(), or from the folder of "
        "`__file__`); else nothing has been written there."
    )
