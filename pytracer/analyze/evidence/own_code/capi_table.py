"""A function of NumPy's C API that the program's extension called before it had fetched NumPy's table of functions.

`PyArray_...()` are entries of a table, `PyArray_API`, which is null until `import_array()` has run in that library,
and, where the table is not shared (PY_ARRAY_UNIQUE_SYMBOL), in that source file.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_source import own_lines, source_text
from pytracer.analyze.view import ProcessView

# Entries of the table (numpy/core/include, __multiarray_api.h); macros that read a field of an array are none.
_NO_ENTRIES = (
    "DATA|DIMS?|NDIM|STRIDES?|SHAPE|TYPE|SIZE|BYTES|BASE|DESCR|FLAGS|ITEMSIZE|GETPTR[1-4]|IS[A-Z_]+|CHKFLAGS|DTYPE"
)
_ENTRY = Pattern(rf"\bPyArray_(?!(?:{_NO_ENTRIES})\b)(\w+)\s*\(")
_FETCHES = Pattern(r"\b(_?import_array\d?|PyArray_ImportNumPyAPI|import_umath)\b")
_MAKES_MODULE = Pattern(r"\b(PyInit_\w+|PYBIND11_MODULE|BOOST_PYTHON_MODULE)\b")


class UnfetchedTable(msgspec.Struct, frozen=True):
    """`called`: `PyArray_SimpleNewFromData`; `where`: `PyInit_fasthist()` where the file makes the module."""

    called: str
    place: str
    where: str | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return f"{self.called}() is called, and import_array() nowhere in its file: NumPy's table of functions is null"

    @property
    def advice(self) -> str:
        """The change to make."""
        at = f"in {self.where}" if self.where is not None else "where the module is made"
        return (
            f"Call import_array() {at}, before {self.called}() at {self.place} and any other PyArray_ function: they "
            "are entries of NumPy's table, PyArray_API, which is null until then. Where another file calls it, "
            "define PY_ARRAY_UNIQUE_SYMBOL alike in all, and NO_IMPORT_ARRAY in the others."
        )


def unfetched_table(view: ProcessView) -> UnfetchedTable | None:
    """None unless the running line, or the next, calls such a function, and its file never fetches the table."""
    place = view.place
    frame = next(iter(own_frames(view)), None)
    if place is None or not 0 <= place.addr < NEAR_NULL_BYTES or frame is None or not is_own_frame(frame):
        return None
    source, text = own_lines(frame), source_text(frame)
    if source is None or text is None or _FETCHES.search(text):
        return None
    file, lines = source
    number, running = lines[-1]
    match = _ENTRY.search(running)
    if match is None:
        return None
    makes = _MAKES_MODULE.search(text)
    where = f"{makes[1]}()" if makes is not None and makes[1].startswith("PyInit") else makes[1] if makes else None
    return UnfetchedTable(f"PyArray_{match[1]}", f"{file}:{number}", where)
