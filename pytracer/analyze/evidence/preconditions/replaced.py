"""A parameter whose memory was replaced, and the program's line that sets `.data` of tensors.

An assignment to `.data` compares nothing; load_state_dict() and copy_() raise an error where sizes differ.
"""

from __future__ import annotations

import ast
from itertools import chain

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import parameter_name, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.set_attributes import lines_that_set_attribute
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import NamedTensor
from pytracer.report.job import PythonFrame

_ROLE = "parameter"
_QUOTED = 70


def replaced_words(view: ProcessView, base: int | None) -> str:
    """`` No size is checked where line 49 (`params[name].data = value`) sets `.data`: ... ``; or nothing."""
    return data_words(view) if replacing_line(view, base) is not None else ""


def replacing_line(view: ProcessView, base: int | None) -> LineWords | None:
    """The line that sets `.data`, of a parameter that had other memory before."""
    return _data_line(view) if base and _is_replaced(view, base) else None


def data_words(view: ProcessView) -> str:
    """The same, whatever parameter it is."""
    place = _data_line(view)
    if place is None:
        return ""
    return (
        f" No size is checked where {place} sets `.data`: `load_state_dict()` or `copy_()` raises an error where sizes "
        "differ."
    )


def replaced_parameters(view: ProcessView, nbytes: int) -> list[str]:
    """`conv.weight_g`, of all parameters with so many bytes that had other memory before."""
    seen: dict[str, list[NamedTensor]] = {}
    for item in chain.from_iterable(view.process.snapshot.named.values()):
        if item.role == _ROLE and item.nbytes == nbytes:
            seen.setdefault(item.name, []).append(item)
    moved = (name for name, items in seen.items() if len({item.base for item in items}) > 1)
    return list(dict.fromkeys(parameter_name(name) for name in moved))


def _data_line(view: ProcessView) -> LineWords | None:
    """The program's one line that gives a tensor the data of another one: `p.data = p.data.clamp(0, 1)` does not."""
    lines = {
        (file, item.line)
        for file, tree in program_files(view.process.snapshot, program_frames(view)).items()
        for item in lines_that_set_attribute(tree, "data")
        if item.value is not None and item.owner not in {ast.unparse(node) for node in nodes_of(item.value)}
    }
    if len(lines) != 1:
        return None
    file, line = lines.pop()
    text = line_text(view.process.snapshot, PythonFrame(function=None, file=file, line=line)) or ""
    return place_of(view, file, line).quoted(shortened(text, _QUOTED))


def _is_replaced(view: ProcessView, base: int) -> bool:
    """Whether the parameter had other memory before."""
    storage, named = view.space.live_around(base), view.space.uses.named
    here = named.of_storage(storage, base)[0] if storage is not None else []
    latest = max((item for item in here if item.role == _ROLE), key=lambda item: item.epoch, default=None)
    return latest is not None and any(item.base != base for item in named.with_name(latest.name))
