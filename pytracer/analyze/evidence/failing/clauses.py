"""The first clause of an explanation, for the headline: what is wrong, without the lines that made each value."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer._text import uncapital

# `` (line 6: `width = 128`) ``, `` (train.py:6) ``, `` (returned by Data.__getitem__, line 30) ``.
_PLACE = Pattern(r" \((?:[\w.(),]+ )*(?:[\w./]*\.py:|line )\d+(?:: `[^`]*`(?:, [^()`]*)?|,[^()`]*)?\)")
_CLAUSE = Pattern(r"(?:`[^`]*`|(?<!\w)'[^']*'|[^`])*?(?=[:;] |\. |\.$)")
_LONGEST = 130
_REST = Pattern(r", (?:so that|and|which) ")  # what follows may be left out, and the rest still holds
_PLAIN = Pattern(r"(?:The|A|All|An|Another|Entry|Line|Sample|Dimension|Gradients|No|None|Item|Each|What|Element)\b")
_OTHERS = Pattern(r"(?:In|If|Look|Print|Compare|Something)\b")


def first_clause(words: str) -> str | None:
    """`` `fc` takes 400 features, and `x` is [4, 2700] ``; None of a long one, or of what is no statement."""
    found = _CLAUSE.match(_PLACE.sub("", words))
    text = found[0] if found is not None else ""
    text = _REST.split(text)[0] if len(text) > _LONGEST else text
    if (
        not 0 < len(text) <= _LONGEST
        or _OTHERS.match(text)
        or text.count("(") != text.count(")")
        or text.count("`") % 2
    ):
        return None
    return uncapital(text) if _PLAIN.match(text) else text
