"""The operator that made a tensor behind which the heap is overwritten, where it takes sizes for granted.

Its result was made by the size of one argument, and is written by that of another one. That it wrote too far is a
suspicion: others may have written there.
"""

from __future__ import annotations

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.preconditions.call import argument_texts, operators_on
from pytracer.analyze.evidence.preconditions.replaced import data_words, replaced_parameters
from pytracer.analyze.evidence.preconditions.terms import as_code
from pytracer.analyze.known.operators import preconditions
from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage

_MOST_NAMES = 3


class UncheckedMaker(msgspec.Struct, frozen=True):
    """`operator` at `place`, which does not check `term`; `replaced`: what is known of parameters of that size."""

    operator: str
    place: str
    term: str
    replaced: str

    @property
    def summary(self) -> str:
        """`` _weight_norm at line 9, which does not check that `g.numel() >= v.size(0)` ``."""
        return f"{self.operator} at {self.place}, which does not check that `{self.term}`"

    @property
    def advice(self) -> str:
        """What to compare."""
        return (
            f"Check that `{self.term}` where {self.place} calls {self.operator}: it takes that for granted, and the "
            f"memory behind what it made is overwritten.{self.replaced}"
        )


def unchecked_maker(view: ProcessView, storage: Storage) -> UncheckedMaker | None:
    """None unless the line that made the tensor calls one operator of which that is known.

    None also of what a variable holds: that is the result, which has the size that the operator writes.
    """
    site, known = storage.allocated_by.python, preconditions()
    tree = syntax_tree(view.process.snapshot, python_frame(site)) if site is not None and site.line else None
    if site is None or site.line is None or tree is None:
        return None
    calls = operators_on(tree, site.line, known)
    held = any(item.base == storage.base and item.frame for item in (view.crash.holders if view.crash else ()))
    if held or len(calls) != 1 or known[calls[0][0]].at_once:
        return None
    name, call = calls[0]
    texts = argument_texts(call, known[name])
    terms = [text for item in known[name].must if (text := as_code(item, texts)) is not None]
    if not terms:
        return None
    of_library = is_library_file(site.file)
    place = f"{short_file(site.file)}:{site.line}" if of_library else str(place_of(view, site.file, site.line))
    return UncheckedMaker(name.rpartition(".")[2], place, terms[0], _replaced(view, storage))


def _replaced(view: ProcessView, storage: Storage) -> str:
    """`` `conv.weight_g` has that size since its memory was replaced. ``"""
    found = replaced_parameters(view, storage.nbytes)
    if not found:
        return ""
    has, its = ("has", "its") if len(found) == 1 else ("have", "their")
    names = list_words([f"`{name}`" for name in list(found)[:_MOST_NAMES]])
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return f" {names}{more} {has} that size, and {its} memory was replaced.{data_words(view)}"
