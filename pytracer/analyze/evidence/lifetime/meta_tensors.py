"""Tensors on device meta: they have a shape and never had memory. Native code that takes their address is given null.

A model that was made under `torch.device("meta")`, or by accelerate's init_empty_weights(), is that until its weights
are loaded. torch's own operators answer for that device; an extension that reads a data pointer does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder

META = "meta"
_EMPTY_INITS = ("init_empty_weights",)
_QUOTED = 44


class MetaTensors(msgspec.Struct, frozen=True):
    """`names` are on device meta; `line`: the only one of the program that makes tensors there, with its text."""

    names: tuple[str, ...]
    elements: int
    line: LineWords | None
    text: str

    @property
    def summary(self) -> str:
        """For the headline."""
        named = list_words([f"`{name}`" for name in self.names])
        only = len(self.names) == 1
        count = f" ({self.elements} elements)" if only else ""
        made = f"; {self.line} makes tensors there" if self.line is not None else ""
        return f"{named}{count} {'is' if only else 'are'} on device meta, which has no memory{made}"

    def advice(self, view: ProcessView) -> str:
        """How they get memory."""
        named = list_words([f"`{name}`" for name in self.names])
        made = f"; {self.line} (`{self.text}`) makes tensors that have none" if self.line is not None else ""
        return (
            f"Give {named} memory before {line_words(view)}: module.to_empty(device='cpu'), then load the weights, or "
            f"load_state_dict(state, assign=True){made}."
        )


def meta_tensors(view: ProcessView, items: Sequence[Holder]) -> MetaTensors | None:
    """None unless all have elements, and are known to be on that device."""
    if not items or not all(is_meta(view, item) for item in items):
        return None
    names = tuple(dict.fromkeys(plain_expression(item.expression) for item in items))
    files = program_files(view.process.snapshot, program_frames(view))
    found = {(file, line): text for file, tree in files.items() for line, text in _lines(tree)}
    if len(found) != 1:
        return MetaTensors(names, items[0].elements, None, "")
    (file, line), text = next(iter(found.items()))
    return MetaTensors(names, items[0].elements, place_of(view, file, line), shortened(text, _QUOTED))


def is_meta(view: ProcessView, item: Holder) -> bool:
    """Whether the native code was given such a tensor of its size, and none of the CPU's without memory."""
    crash = view.crash
    given = crash.arguments if crash is not None else ()
    devices = {one.device for one in given if not one.undefined and not one.base and one.elements == item.elements}
    return item.elements > 0 and devices == {META}


def _lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    nodes = [*nodes_of(tree)]
    tested = {id(part) for item in nodes if isinstance(item, ast.Compare) for part in nodes_of(item)}
    for node in nodes:
        if not isinstance(node, ast.Call) or id(node) in tested:
            continue
        given = [*node.args, *(item.value for item in node.keywords if item.arg == "device")]
        to_meta = any(isinstance(part, ast.Constant) and part.value == META for part in given)
        if to_meta or called_name(node) in _EMPTY_INITS:
            yield node.lineno, ast.unparse(node)
