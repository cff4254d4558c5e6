"""The line of the program that makes the module which a parameter or buffer belongs to, by its recorded name.

`running_mean` of `layer1.1` is allocated in a constructor that many modules run; the size that it was given is decided
where `self.layer1` is set.
"""

from __future__ import annotations

import ast

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_ROLES = ("parameter", "buffer")
_QUOTED = 60


def module_line(view: ProcessView, base: int) -> LineWords | None:
    """`` `layer1` (line 44: `self.layer1 = conv_bn(base)`) ``; None without a name, or where several lines set it."""
    storage = view.space.live_around(base)
    named = view.space.uses.named.of_storage(storage, base)[0] if storage is not None else []
    for item in named:
        if item.role in _ROLES:
            path = item.name.removeprefix(f"{item.role} ").partition(" of ")[0].split(".")
            for name in reversed([part for part in path[:-1] if part.isidentifier()]):
                found = _setting(view, name)
                if found is not None:
                    return found
    return None


def _setting(view: ProcessView, name: str) -> LineWords | None:
    """The only line that sets `self.name` to what a call makes."""
    files = program_files(view.process.snapshot, program_frames(view))
    lines = [
        (file, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and any(variable(target) == f"self.{name}" for target in item.targets)
    ]
    if len(lines) != 1 or not isinstance(lines[0][1].value, ast.Call):
        return None
    file, statement = lines[0]
    text = shortened(" ".join(ast.unparse(statement).split()), _QUOTED)
    return place_of(view, file, statement.lineno).after(f"`{name}` (").then(f": `{text}`)")
