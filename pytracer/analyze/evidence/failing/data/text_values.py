"""A text that float() or int() takes for no number: which field it is, and what it has in place of one."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.name_origins import sample_number
from pytracer.analyze.evidence.failing.data.text_lines import line_of_file, on_the_way
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body, statement_at

_REFUSED = Pattern(
    r"^(?:could not convert string to (float): |invalid literal for (int)\(\) with base \d+: )"
    r"(?:np\.str_\()?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)?$"
)
_KEY = Pattern(r"\[('(?:[^'\\]|\\.)*')\]$")
_MISSING = ("nan", "na", "n/a", "null", "none", "nil", "-", "?", ".", "missing", "unknown")
_DECIMAL, _THOUSANDS = Pattern(r"[+-]?\d+,\d+$"), Pattern(r"[+-]?\d{1,3}(?:,\d{3}){1,4}(?:\.\d+)?$")
_PLACES = Pattern(r"[\w.]+(?:\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?\d+)\])*")
_MAKES = (ast.Call, ast.ListComp)
_DEEP = 3
_PLACE = "place of the refused text"
_NUMBER = Pattern(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")


class _Refused(msgspec.Struct, frozen=True):
    """`what`: what the text at its place is. `owner`: the variable with it. `change`: what to do about it."""

    place: str
    owner: str
    what: str
    change: str


def no_number(at: FailingLine) -> str | None:
    """Of a field whose place is recorded."""
    found = _refused(at)
    if found is None:
        return None
    where = line_of_file(at)
    came = _read(at, found.owner)
    return f"{found.place}{came} is {found.what}{f', in {where}' if where else ''}: {found.change}"


def _read(at: FailingLine, owner: str) -> str:
    """`` (line 27: `list(csv.DictReader(f))`) ``: what made the rows, of which it is one."""
    made = at.made(owner) if owner.isidentifier() else None
    for _ in range(_DEEP):
        if made is None or not isinstance(made.node, ast.Subscript):
            break
        made = at.slice.made(made.node.value, made.spot, calls=False)
    known = made is not None and made.through and isinstance(made.node, _MAKES) and made.line != at.line
    return f" ({at.shown(made)})" if known and made is not None else at.came(owner)


def no_number_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _refused(at)
    if found is None:
        return None
    where, number = line_of_file(at), sample_number(at.snapshot, at.exception, at.stack)
    which = f" of sample {number}" if number is not None else ""
    return f"{found.place}{which} is {found.what}{f', in {where}' if where else ''}"


def _refused(at: FailingLine) -> _Refused | None:
    message = _REFUSED.match(at.message) if at.kind == "ValueError" else None
    held = at.values.get(_PLACE) or next((item[_PLACE] for item in at.outer.values() if _PLACE in item), None)
    if message is None or held is None or not _is_of_rows(at):
        return None
    text = ast.literal_eval(message[3])
    places = _used(at, _PLACES.findall(held))
    if not places:
        return None
    place = f"`{places[0]}`" if len(places) == 1 else f"one of {', '.join(f'`{item}`' for item in places)}"
    return _Refused(place, places[0].partition("[")[0], *_meant(text, places, is_int=message[2] is not None))


def _used(at: FailingLine, places: list[str]) -> list[str]:
    """Those of the container that the failing line reads, or that its values came from: another may have such a text.

    Of a function that passes the text on to the failing one, by its own line.
    """
    for frame in at.frames[:_DEEP]:
        tree = at.files.get(frame.file or "")
        if tree is None or frame.line is None:
            continue
        statement = statement_at(tree, frame.line)
        way = on_the_way(scope_of(tree, frame.line), statement)
        parts = [item for item in nodes_of(statement) if isinstance(item, ast.Subscript)] if statement else []
        exact = [item for item in places if item in map(ast.unparse, parts)]
        near = min((way[name] for item in places if (name := item.partition("[")[0]) in way), default=None)
        if near is not None:
            return exact or [item for item in places if way.get(item.partition("[")[0]) == near]
    return []


def _is_of_rows(at: FailingLine) -> bool:
    """Whether the line reads one of many, as of a file or data set, and no option."""
    loops = (*LOOPS, ast.comprehension)
    if "text file" in at.values or any("__getitem__" in (frame.function or "") for frame in at.frames):
        return True
    statement = at.statement
    inside = [*nodes_of(statement)] if statement is not None else []
    around = (item for item in own_nodes(at.scope) if isinstance(item, LOOPS) and spans_body(item.body, at.line))
    return any(isinstance(item, loops) for item in inside) or any(around)


def _meant(text: str, places: list[str], *, is_int: bool) -> tuple[str, str]:
    """What it is, and what to do."""
    plain, place = text.strip(), places[0]
    key = _KEY.search(place)
    if key is not None and ast.literal_eval(key[1]).strip() == plain and plain:
        return (
            f"{text!r}, the name of its own column",
            (
                "the header line was read as a row. Leave it out where the rows are read (`next(reader)`, skiprows=1, "
                "or a csv.DictReader without fieldnames=)."
            ),
        )
    if not plain:
        return (
            "empty",
            (
                "leave such entries out where they are read, or put a number in place of it "
                "(`float(x) if x.strip() else float('nan')`, and fill the NaN before training)."
            ),
        )
    if plain.lower() in _MISSING:
        return (
            f"{text!r}, a mark for a value that is missing",
            "leave such entries out where they are read, or put a number in place of it.",
        )
    if is_int and _NUMBER.match(plain):
        return f"{text!r}, and int() takes no decimal point or exponent", f"write int(float({place}))."
    if _DECIMAL.match(plain) and not _THOUSANDS.match(plain):
        return f"{text!r}, with a decimal comma", f"write `{place}.replace(',', '.')` before the conversion."
    if _THOUSANDS.match(plain):
        return (
            f"{text!r}, with commas",
            f"if they part thousands, write `{place}.replace(',', '')`; a decimal comma becomes a point.",
        )
    return (
        f"the text {text!r}",
        (
            "if it is a class or another word, map it to a number by a dict. Else compare that entry with the others: "
            "the wrong column or separator, a header, a damaged line."
        ),
    )
