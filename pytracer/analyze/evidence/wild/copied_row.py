"""A row number that leads far out of what native code copies rows of: memcpy() of one row, from rows + size * number.

What the rows lie in is no tensor: the memory of an index for nearest neighbours, or another container of a library. The
size is memcpy()'s own length; the numbers are those of an integer array that the line passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument
from pytracer.report.job import Confidence, Evidence, PythonFrame

_COPIES = Pattern(r"mem(?:cpy|move)")
_REGISTERS = (("rdi", "rsi", "rdx"), ("x0", "x1", "x2"))  # destination, source and length, by the ABI
_MOST_BYTES = 1 << 20  # of a row
_LEAST_BYTES = 1 << 30  # so far away that no other number leads into the same memory by chance
_WORD = 1 << 64
_QUOTED = 60


@dataclass(frozen=True)
class CopiedRow(Explanation):
    """`name`, with numbers from `low` to `high`, has one by which the row of `nbytes` bytes begins at the address."""

    verdict_class = "out-of-bounds"
    name: str
    low: int
    high: int
    nbytes: int
    made: LineWords | None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f": a number of `{self.name}` ({self.low}..{self.high}) was taken for that of a row of {self.nbytes} "
            "bytes, and leads far out of the memory with the rows"
        )

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        own = Evidence(
            "address-sum",
            f"the address less {self.nbytes} (the length that is copied) times a number of `{self.name}` lies in "
            "memory that can be read",
            scale=self.nbytes,
            value=self.low,
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        made = f", which {self.made} makes," if self.made is not None else ""
        return (
            f"Check the numbers of `{self.name}`{made} before {line_words(view)} passes it: {self.low}..{self.high} "
            "are no positions of rows there, and the function does not refuse them. Ids of another kind, such as those "
            "of an id map or a database, have to be translated to positions first, or given to what does that; leave "
            "out negative ones."
        )


def copied_row(view: ProcessView) -> CopiedRow | None:
    """None unless one array of integers that the line passes has such a number."""
    copied = _copied(view)
    if copied is None:
        return None
    start, nbytes = copied
    found = [
        (name, item)
        for name, item in _passed(view)
        if any(_leads_back(view, start, nbytes, number) for number in (item.minimum, item.maximum))
    ]
    if len({item.base for _, item in found}) != 1:
        return None
    name, item = found[0]
    return CopiedRow(name, item.minimum or 0, item.maximum or 0, nbytes, _made(view, name))


def _copied(view: ProcessView) -> tuple[int, int] | None:
    """Where what is copied begins, and its bytes; of the end that met the fault."""
    crash, place = view.crash, view.place
    if crash is None or place is None or _COPIES.search(view.function or "") is None:
        return None
    for to, source, length in _REGISTERS:
        nbytes = crash.registers.get(length, 0)
        for register in (source, to):
            start = crash.registers.get(register, 0)
            if 0 < nbytes <= _MOST_BYTES and start <= place.addr < start + nbytes:
                return start, nbytes
    return None


def _passed(view: ProcessView) -> Iterator[tuple[str, Argument]]:
    """Integers whose least and largest number are on record, by the variables of the line that hold their memory."""
    crash, frame = view.crash, next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if crash is None or tree is None or frame is None or frame.line is None:
        return
    integers = {
        item.base: item
        for item in crash.arguments
        if item.base and item.minimum is not None and item.maximum is not None and "int" in (item.dtype or "")
    }
    at = (frame.file, frame.line)
    held = {
        item.expression: item.base for item in crash.holders if item.frame and (item.frame.file, item.frame.line) == at
    }
    held |= {item.expression: item.data for item in crash.arrays if (item.frame.file, item.frame.line) == at}
    for name in names_of_line(tree, frame.line):
        if held.get(name) in integers:
            yield name, integers[held[name]]


def _leads_back(view: ProcessView, start: int, nbytes: int, number: int | None) -> bool:
    crash = view.crash
    if crash is None or number is None or abs(number * nbytes) < _LEAST_BYTES:
        return False
    mapping = mapping_at(crash.mappings, (start - nbytes * number) % _WORD)
    return mapping is not None and mapping.permissions.startswith("rw")


def _made(view: ProcessView, name: str) -> LineWords | None:
    """The only line of the function that binds the variable."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    lines = lines_that_bind(scope_of(tree, frame.line), name)
    if len(lines) != 1:
        return None
    text = line_text(view.process.snapshot, PythonFrame(file=frame.file, line=lines[0][0]))
    return place_of(view, frame.file, lines[0][0]).quoted(shortened(text or "", _QUOTED))
