"""Memory of a local object of the program's own C++ function, which ended with it: a tensor or a pointer is left.

`from_blob(pixels.data(), ...)` of a local std::vector makes a tensor that owns nothing; a function that returns the
data_ptr() of its own tensor leaves a pointer.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.own_signature import Definition, definitions, own_definition
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_QUOTED = 60
_BLOB = Pattern(
    r"from_blob\s*\(\s*(?:\([\w\s*]+\)\s*)?&?(?P<name>\w+)"
    r"(?P<how>\.data\(\)|\.data_ptr[^,]*|\.data|\[0\])?\s*,(?P<rest>.*)"
)
_MAY_SHARE = Pattern(r"(?:auto|(?:torch|at)::Tensor)\b")  # `auto t = x.contiguous()` may be x itself
_RETURNED = Pattern(r"\breturn\s+(?P<name>\w+)\s*\.\s*(?:const_|mutable_)?data(?:_ptr)?\b")


class LocalMemory(msgspec.Struct, frozen=True):
    """`text` at `place` hands out the memory of `name`, a local object of `function`."""

    function: str
    name: str
    declared: str
    place: str
    text: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return f"it was the memory of `{self.declared}` of {self.function}() ({self.place}), which ended with that call"


def local_blob(view: ProcessView) -> LocalMemory | None:
    """Where the function that made the tensor at the fault gave it the memory of a local object."""
    storage = view.place.storage if view.place is not None else None
    site = storage.allocated_by.place if storage is not None else None
    frame = python_frame(site) if site is not None else None
    tree = syntax_tree(view.process.snapshot, frame)
    if storage is None or not is_borrowed(storage) or tree is None or frame is None or frame.line is None:
        return None
    found = [item for node in calls_on(tree, frame.line) if (item := _blob(view, called_name(node))) is not None]
    return found[0] if len(found) == 1 else None


def _blob(view: ProcessView, function: str | None) -> LocalMemory | None:
    made = own_definition(view, function) if function is not None else None
    for at, text in enumerate(made.body.splitlines() if made is not None else ()):
        match = _BLOB.search(text)
        if match is None or made is None or function is None:
            continue
        declared = _declared(made, match["name"])
        given = match["how"] is not None or (declared is not None and "[" in declared)
        if declared is None or not given or "[" in match["rest"]:  # a pointer to other memory; a deleter that holds it
            return None
        if _MAY_SHARE.match(declared):
            return None
        return LocalMemory(function, match["name"], declared, f"{made.file}:{made.line + at}", text.strip())
    return None


def returned_pointer(file: str, lines: list[str], function: str) -> LocalMemory | None:
    """Where the only function of that name in a file returns the data of its own tensor."""
    found = list(definitions(file, lines, function))
    if len(found) != 1:
        return None
    for at, text in enumerate(found[0].body.splitlines()):
        match = _RETURNED.search(text)
        declared = _declared(found[0], match["name"]) if match is not None else None
        if match is not None and declared is not None:
            place = f"{found[0].file}:{found[0].line + at}"
            return LocalMemory(function, match["name"], declared, place, text.strip())
    return None


def _declared(made: Definition, name: str) -> str | None:
    """`std::vector<float> pixels` where the body declares it: no parameter, static, reference or pointer."""
    own = re.compile(
        rf"^\s+(?:const\s+)?(?P<type>(?:std::vector\s*<[^;]*>|std::array\s*<[^;]*>|std::string|cv::Mat|(?:torch|at)::Tensor|"
        rf"auto|float|double|int64_t|int|uint8_t|long))\s+{re.escape(name)}\s*(?P<array>\[[^\]]*\])?\s*[;=({{]"
    )
    for text in made.body.splitlines()[1:]:
        match = own.match(text)
        if match is not None:
            numbers = match["type"] in ("float", "double", "int64_t", "int", "uint8_t", "long")
            return f"{match['type']} {name}{match['array'] or ''}" if not numbers or match["array"] else None
    return None


def blob_advice(view: ProcessView, found: LocalMemory) -> str:
    """The change to make."""
    storage = view.place.storage if view.place is not None else None
    site = storage.allocated_by.place if storage is not None else None
    called = f" ({place_of(view, site.file, site.line)} calls it)" if site is not None else ""
    return (
        f"Return a tensor that owns its memory from {found.function}(){called}: `.clone()` behind from_blob() at "
        f"{found.place} (`{shortened(found.text, _QUOTED)}`). from_blob() copies nothing: `{found.name}` ends there."
    )
