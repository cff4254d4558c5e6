"""What is said of a value that differs between two ranks: the variable, the line that makes it, and what to do."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.deciding_tests import DRAWN
from pytracer.analyze.collectives.rank_values import RANK, Compared, RankValue, passed_argument
from pytracer.analyze.evidence.failing.expressions import as_written, short
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_FILES = Pattern(
    r"\b(?:torch|json|yaml|pickle|np|numpy|pd|toml)\.\w*(?:load|read)\w*\(|\bopen\(|\bi?glob\w*\(|\blistdir\(|\bread_\w+\(|\biterdir\("
)
_HASH = Pattern(r"(?<![\w.])hash\(")
_ENVIRONMENT = Pattern(r"\benviron\b|\bgetenv\(|\bgethostname\(|\bcpu_count\(|\bmem_get_info\(")


def value_words(compared: Compared, found: RankValue, ranks: tuple[int, int], values: tuple[str, str] | None) -> str:
    """What differs, the line that makes it, and what to do.

    Args:
        compared: The two ranks.
        found: What was passed, followed back.
        ranks: Their numbers.
        values: What was passed, where the record of the call has it.
    """
    last = found.last
    name, pair, spot = (last.text, last.values, last.spot) if last else (ast.unparse(found.head), values, found.at)
    said = f" is {pair[0]} on rank {ranks[0]} and {pair[1]} on rank {ranks[1]}" if pair is not None else " differs"
    read = (
        f" ({_place(compared, spot, spot.line)}: `{short(_text_of(spot, spot.line))}`)"
        if last is not None and spot.line != found.at.line
        else ""
    )
    return f"`{short(name)}`{said}{read}{_cause(compared, found)}"


def _cause(compared: Compared, found: RankValue) -> str:
    if found.branch is not None:
        statement, test, spot = found.branch
        return (
            f": {_line_words(compared, spot, statement.lineno, _head(statement))} sets it below "
            f"`{short(_head(test))}` (line {test.lineno}). Set it on all ranks alike."
        )
    if found.made is None:
        return "."
    node, spot, line = found.made.node, found.made.spot, found.made.line
    text = as_written(found.made)
    if found.entry is not None:
        statement, name = found.entry
        return (
            f": it comes from {_line_words(compared, spot, line, text)}, and line {statement.lineno} "
            f"(`{short(_head(statement))}`) sets only the rank's own entry of `{name}`. all_gather() or all_reduce() "
            f"`{name}` first, or let one rank decide and broadcast that."
        )
    whole = ast.unparse(node)
    origin = f": it comes from {_line_words(compared, spot, line, text)}" if line != found.at.line else ""
    if _HASH.search(whole):
        return (
            f"{origin}: hash() of a text is another number in each process (PYTHONHASHSEED). Number them by their "
            "order, or use zlib.crc32()."
        )
    if DRAWN.search(whole):
        return f"{origin}, drawn by each rank for itself: let one rank draw and broadcast it, or seed all ranks alike."
    if _FILES.search(whole):
        return (
            f"{origin}, which reads files: see what each rank finds there. Let one rank read and broadcast it, or "
            "agree on it (all_reduce() with MIN)."
        )
    if RANK.search(whole):
        return f"{origin}, which depends on the rank: make it the same on all."
    if _ENVIRONMENT.search(whole):
        return f"{origin}, which differs by process or host: let one rank read it and broadcast it."
    return (
        f"{origin}. Let one rank decide and broadcast it, or compute it from what all ranks have (all_reduce() first)."
    )


def _line_words(compared: Compared, spot: Spot, line: int, text: str | None = None) -> str:
    """`` line 59 (`for step in range(first, 12):`) ``."""
    place = _place(compared, spot, line)
    shown = text if text is not None else _text_of(spot, line)
    return f"{place} (`{short(shown)}`)" if shown else place


def _place(compared: Compared, spot: Spot, line: int) -> str:
    return line_in(spot.file, line, compared.frames[0].file)


def _text_of(spot: Spot, line: int) -> str:
    """The head of the statement at a line."""
    found = [item for item in nodes_of(spot.tree) if isinstance(item, ast.stmt) and item.lineno == line]
    return _head(found[0]) if found else ""


def _head(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0]


def differing_advice(
    sides: tuple[tuple[ProcessView, Collective], tuple[ProcessView, Collective]],
    names: tuple[str, ...],
    values: tuple[str, str] | None,
) -> str | None:
    """Of a root or a tag; None where the program's line does not show what was passed.

    Args:
        sides: Two ranks and their calls.
        names: Of the argument: `src` or `dst`.
        values: What each passed, if the argument is that number itself.
    """
    (mine, my_call), (theirs, their_call) = sides
    compared = Compared(mine, my_call, theirs, their_call)
    passed = passed_argument(compared, names, my_call.op)
    found = compared.follow(*passed) if passed is not None else None
    if found is None or (found.last is None and isinstance(found.head, ast.Constant)):
        return None
    ranks = mine.process.rank or 0, theirs.process.rank or 0
    words = value_words(compared, found, ranks, values)
    return words if found.last is not None or values is not None else None
