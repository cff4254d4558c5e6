"""Which branches were not taken, of those that would have set a variable or returned a value, and by which value."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.given_texts import given_text
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.guards import Guard
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import own_nodes

MOST = 4
_MOST_VALUES = 3
_LIKE = 0.8
_LONG = 6  # of a shorter text, one letter may well be another word: 'eval', 'val'
_PAIR = 2


class Untaken(msgspec.Struct, frozen=True):
    """`words`: ``only where `arch` is 'a' (line 3) or 'b' (line 5), and it is 'c' (line 12)``. `advice`: the next step.

    `by_value`: whether the value that no test asks for is known.
    """

    words: str
    advice: str
    by_value: bool = False


def untaken(at: FailingLine, spot: Spot, guards: Sequence[Guard], otherwise: str) -> Untaken | None:
    """None for none, or too many to tell.

    Args:
        at: The failing line.
        spot: The place behind them.
        guards: Branches of its function of which none ran.
        otherwise: What to do where no value decides.
    """
    if not 0 < len(guards) <= MOST:
        return None
    asked = _asked(guards)
    if asked is not None:
        return _by_value(at, spot, guards, *asked)
    tests = [f"`{source(item.test)}` ({at.in_file(spot.file, item.line)})" for item in guards]
    values = _values(at, spot, guards)
    none = "it did not hold" if len(tests) == 1 else "neither was taken" if len(tests) == _PAIR else "none was taken"
    return Untaken(f"only below {list_words(tests, MOST)}, and {none}{values}", otherwise)


def _asked(guards: Sequence[Guard]) -> tuple[ast.expr, list[list[str]]] | None:
    """What all tests, and those above them, compare with texts, and the texts of each."""
    read = [_compared(item.test) for item in guards]
    above = [_compared(item) for guard in guards for item in guard.before]
    if any(item is None for item in (*read, *above)):
        return None
    kept = [item for item in read if item is not None]
    subjects = {ast.dump(item[0]) for item in (*kept, *(other for other in above if other is not None))}
    return (kept[0][0], [item[1] for item in kept]) if len(subjects) == 1 else None


def _compared(test: ast.expr) -> tuple[ast.expr, list[str]] | None:
    """`arch == "a"`, `arch in ("a", "b")`, and several of these joined by `or`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        inner = [_compared(item) for item in test.values]
        found = [item for item in inner if item is not None]
        same = len(found) == len(inner) and len({ast.dump(item[0]) for item in found}) == 1
        return (found[0][0], [text for item in found for text in item[1]]) if same else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    (right,) = test.comparators
    if isinstance(test.ops[0], ast.Eq) and isinstance(right, ast.Constant) and isinstance(right.value, str):
        return test.left, [right.value]
    if not isinstance(test.ops[0], ast.In) or not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
        return None
    texts = [item.value for item in right.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return (test.left, texts) if texts and len(texts) == len(right.elts) else None


def _by_value(
    at: FailingLine, spot: Spot, guards: Sequence[Guard], subject: ast.expr, texts: Sequence[Sequence[str]]
) -> Untaken | None:
    name = source(subject)
    known = [
        f"{list_words([repr(text) for text in each], MOST, 'or')} ({at.in_file(spot.file, item.line)})"
        for item, each in zip(guards, texts, strict=True)
    ]
    only = f"only where `{name}` is {list_words(known, MOST, 'or')}"
    is_set = _is_set_since(spot, subject, guards[0].head)
    found = given_text(at, subject, spot) if not is_set else None
    accepted = [text for each in texts for text in each]
    if found is not None and found[0] in accepted:
        return None  # the source says that a branch was taken
    if found is None:
        nothing = " (None)" if not is_set and at.value_at(subject, spot) == "None" else ""
        are = "it was none of these" if len(accepted) > 1 else "it was not"
        return Untaken(
            f"{only}, and {are}{nothing}",
            f"Print `{name}` before {at.in_file(spot.file, guards[0].line)}, and correct it where it is made, or add a "
            "branch for it; an `else:` that raises would name it.",
        )
    text, where = found
    tests = (item for item in own_nodes(spot.scope) if isinstance(item, ast.If))
    own = next((item for item in tests if _has(item.test, subject, text)), None)
    if own is not None:
        line = at.in_file(spot.file, own.lineno)
        return Untaken(f"{only}, and it is {text!r} ({where})", f"The branch for {text!r} ({line}) lacks that.")
    near = _near(text, accepted)
    change = f"Write {near!r}" if near is not None else "Pass one of those" if len(accepted) > 1 else "Pass that"
    return Untaken(f"{only}, and it is {text!r} ({where})", f"{change}, or add a branch for {text!r}.", by_value=True)


def _has(test: ast.expr, subject: ast.expr, text: str) -> bool:
    found = _compared(test)
    return found is not None and text in found[1] and ast.dump(found[0]) == ast.dump(subject)


def _is_set_since(spot: Spot, subject: ast.expr, first: int) -> bool:
    """Whether a line at or behind the tests may have given it another value than they read."""
    names = names_in(subject)
    return any(line >= first for name in names for line in places_that_bind(spot.scope, name.partition(".")[0])) or any(
        isinstance(item, (ast.Attribute, ast.Subscript))
        and isinstance(item.ctx, ast.Store)
        and item.lineno >= first
        and ast.unparse(item) == ast.unparse(subject)
        for item in own_nodes(spot.scope)
    )


def _near(text: str, known: Sequence[str]) -> str | None:
    """The one that differs in case, or by a letter or two of many; 'resnet34' is no 'resnet50'."""
    same = [item for item in known if _plain(item) == _plain(text)]
    alike = [item for item in known if _digits(item) == _digits(text)] if len(text) >= _LONG else []
    return next(iter(same or difflib.get_close_matches(text, alike, 1, _LIKE)), None)


def _plain(text: str) -> str:
    return text.casefold().replace("-", "").replace("_", "").replace(" ", "")


def _digits(text: str) -> str:
    return "".join(item for item in text if item.isdigit())


def _values(at: FailingLine, spot: Spot, guards: Sequence[Guard]) -> str:
    """Of the variables that the tests read, where the record has them and no line behind the tests sets them."""
    names = dict.fromkeys(name for item in guards for name in names_in(item.test))
    held = at.values_at(spot.depth) if spot.depth is not None else {}
    last = max(item.line for item in guards)
    kept = [name for name in names if not any(line > last for line in places_that_bind(spot.scope, name))]
    told = [f"`{name}` is {held[name]}" for name in kept if name in held and not held[name].startswith("str of")]
    return f" ({', '.join(told)})" if 0 < len(told) <= _MOST_VALUES else ""
