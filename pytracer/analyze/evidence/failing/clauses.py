"""The first clause of an explanation, for the headline: what is wrong, without the lines that made each value.

And the clause behind a colon, where that is a statement and no advice: `its input is [8, 32, 32, 3]: the channels are
last`.
"""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer._text import uncapital

# `` (line 6: `width = 128`) ``, `` (train.py:6) ``, `` (returned by Data.__getitem__, line 30) ``.
_PLACE = Pattern(r" \((?:[\w.(),]+ )*(?:[\w./]*\.py:|line )\d+(?:: `[^`]*`(?:, [^()`]*)?|,[^()`]*)?\)")
_CLAUSE = Pattern(r"(?:`[^`]*`|(?<!\w)'[^']*'|[^`])*?(?=[:;] |\. |\.$)")
_LONGEST = 145
_REST = Pattern(r", (?:so that|and|which) ")  # what follows may be left out, and the rest still holds
_PLAIN = Pattern(r"(?:The|A|All|An|Another|Entry|Line|Sample|Dimension|Gradients|No|None|Item|Each|What|Element)\b")
_OTHERS = Pattern(r"(?:In|If|Look|Print|Compare|Something)\b")
_REASON = Pattern(
    r": ((?:the|a|an|it|they|its|their|one|two|four|only|`[^`]+`|[\w.]+\(\)) (?:`[^`]*`|[^`.:;]|\.(?! |$))*)(?=[.;]|: )"
)
_MORE = Pattern(r", (?:as|and) ")  # as above, of a reason
_QUOTED = Pattern(r"`[^`]*`")
_ADVISES = Pattern(
    r"\b(?:write|pass|make|use|call|set|give|put|take|correct|convert|return|keep|needs?|must|should|often|may|if|or)\b"
)


def without_places(words: str) -> str:
    """Of an explanation, without the lines in parentheses."""
    return _PLACE.sub("", words)


def first_clause(words: str) -> str | None:
    """`` `fc` takes 400 features, and `x` is [4, 2700] ``; None of a long one, or of what is no statement."""
    told = without_places(words)
    found = _CLAUSE.match(told)
    text = found[0] if found is not None else ""
    text = _REST.split(text)[0] if len(text) > _LONGEST else text + _reason(told[len(text) :], _LONGEST - len(text))
    if (
        not 0 < len(text) <= _LONGEST
        or _OTHERS.match(text)
        or (plain := _QUOTED.sub("", text)).count("(") != plain.count(")")
        or text.count("`") % 2
    ):
        return None
    return uncapital(text) if _PLAIN.match(text) else text


def _reason(rest: str, most: int) -> str:
    """`: the channels are last`, of what follows the first clause."""
    found = _REASON.match(rest)
    if found is None or _ADVISES.search(_QUOTED.sub("", found[1])):
        return ""
    ends = [len(found[0]), *(item.start() for item in _MORE.finditer(found[0]))]
    fits = [found[0][:end] for end in ends if end <= most]
    text = max(fits, key=len, default="")
    return text if text.count("(") == text.count(")") else ""
