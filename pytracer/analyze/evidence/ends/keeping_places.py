"""The places that keep what a line makes, in words."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened, size_words
from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.naming import LineWords, line_in

_QUOTED = 60


class KeepingPlace(msgspec.Struct, frozen=True):
    """A statement, or a function with a cache, that keeps `value` in `container`."""

    file: str
    tree: ast.Module
    node: ast.stmt
    value: str
    container: str
    kind: str


def place_told(place: KeepingPlace, here: str) -> KeepingLine:
    """For the headline and the next step; `here`: the file that is spoken of."""
    at: LineWords = line_in(place.file, place.node.lineno, here)
    capital = f"{at[0].upper()}{at[1:]}" if place.file == here else str(at)
    text = shortened(" ".join(ast.unparse(place.node).split()), _QUOTED)
    value, container = f"`{place.value}`", f"`{place.container}`"
    if place.kind == "cache":
        return KeepingLine(
            f"the cache of {place.container}() ({at}) keeps each of its results",
            f"The cache of {place.container}() ({at}, `{place.value}`) keeps each result for ever: give it a small "
            "maxsize, keep what is small, or leave the cache out.",
        )
    if place.kind == "queue":
        return KeepingLine(
            f"{at} puts {value} into {container}, a queue without a limit",
            f"{capital} (`{text}`) puts into a queue without a limit, so what is made faster than it is taken waits "
            "in memory: give the queue a maxsize, so that put() waits.",
        )
    function = qualified_name(place.tree, scope_of(place.tree, place.node.lineno))
    of = f", in {function}(), a hook of layers" if place.kind == "hook" else ""
    return KeepingLine(
        f"{at} keeps each {value} in {container}{of}",
        f"{capital} (`{text}`) keeps each {value}{of}, and no line takes any out of {container}: keep a number or the "
        "few values of it that are read later (detach() alone keeps all of its values), or give it a bound (a deque "
        "with maxlen, or drop the oldest).",
        container=place.container,
    )


def buffer_told(place: KeepingPlace, most: int, size: str, each: int, here: str | None) -> KeepingLine:
    """Of a container with room for more than fits. `each`: the bytes of one."""
    at: LineWords = line_in(place.file, place.node.lineno, here)
    whole = size_words(most * each)
    named = f" (`{size}`)" if size != str(most) else ""
    return KeepingLine(
        f"{at} keeps each `{place.value}` in `{place.container}`, which has room for {most}{named}, {whole} in all",
        f"`{place.container}` ({at}) is not full yet: with {size_words(each)} for each it needs {whole}. Make "
        f"`{size}` small enough for the memory that there is, or keep each in a smaller type (uint8), once only, or on "
        "disk (np.memmap).",
        endless=True,
        container=place.container,
    )
