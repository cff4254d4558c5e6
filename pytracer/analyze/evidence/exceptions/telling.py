"""Which sentence of a message tells what was wrong: libraries often begin with what they were doing, or end with it.

A message is cut into statements. The first one stays, as it is what a reader searches for. Where it only announces, the
statement behind it that has the most facts follows: one that a library marks as the reason, that opposes two things, or
that has a name, a number or a shape. Advice, links and lines of a traceback are none.
"""

from __future__ import annotations

import re

from pytracer._patterns import Pattern
from pytracer._printable import without_styling
from pytracer._text import message_words
from pytracer.analyze.evidence.failing.own_advice import advises

_TORCHSCRIPT = "The following operation failed in the TorchScript interpreter"
_INNER = Pattern(r"^(?:\w+\.)*\w*(?:Error|Exception): (?!The following operation failed)(.+)", re.MULTILINE)
_NOISE = Pattern(
    r"^\[enforce fail at [\w./]+:\d+\] [^.]{0,40}\. "  # of torch's allocator
    r"|^(?:\[rank\d+\]:)?\[[FEWI]\d{4} [\d:.]+ (?:\d+ )?[\w./]+\.\w+:\d+\] "  # of a line of torch's log
    r"|^Consider annotating your code using torch\._check\*\(\)\. | \(unhinted: [^\n]*$"  # of torch.compile
    r"| in: /\S+?\.(?:cpp|cu|h):\d+(?=,)| For (?:more|further) information, [^\n]*"
    r"|(?: because of the following error)? \(look up to see its traceback\)",
    re.MULTILINE,
)
_SAVED = Pattern(  # of autograd: the tensor shorter, without versions and hint
    r"(?<=inplace operation): \[torch\.[\w.]*Tensor (\[[\d, ]*\])\](?:, which is (output \d+ of [\w:]+))?, is at "
    r"version \d+; expected version \d+ instead\.(?: Hint: [^\n]*)?"
)
_BACKTRACE = Pattern(r"^(?:Exception raised from |C\+\+ CapturedTraceback:|frame #0: )", re.MULTILINE)
_WRAPPED = 4  # lines of a sentence
_LINES, _LONGEST, _HEAD = 80, 400, 70
_ENOUGH = 3
_SENTENCE = Pattern(r"(?<=[a-z)\]`'\"][.!])\s+(?=[A-Z`'\"])|(?<=exception occurred :) (?=\()")
_BULLET = Pattern(r"^(?:[-*•] |\(\d+\) |>+ )\s*")
_RULE = Pattern(r"^\W*$|^#+ |^\[\.\.\.\]$")
_NESTED = Pattern(r"^\((['\"])(?P<message>.+?)\1,?\)\.?$")
_SUBJECT = Pattern(r"^[\w.]+$")  # of pydantic: the name of a field, above what is wrong with it
_OPTION = Pattern(r"^\w+\s?[:=]")
_PLACE = Pattern(r'^in "[^"]+", line \d+')
_AFTER_REASON = Pattern(
    r"^(?:(?:The )?(?:[Oo]riginal|[Ll]ast|[Rr]oot) (?:error|cause|exception)(?: was)?"
    r"|Reason|Cause|(?:\w*Unpickler|fatal) error|<class '[\w.]*(?:Error|Exception)'>)\s*:\s*(?P<reason>.*)"
)
_MARKED = Pattern(
    r"^(?:\w+\.)*\w+(?:Error|Exception)(?:\(|: )|(?:^|: )(?:fatal )?error: |^because\b|^But your\b|^Caused by\b"
)
_OPPOSED = Pattern(
    r"\b(?:expected|got|but|instead|requires?|required|actual|mismatch(?:ed)?|differs?|must|specialized|not found"
    r"|no such|missing|unexpected|undefined|unable|cannot|can't|not allowed|(?:is|are|was|were) not|not in|has no"
    r"|no module|unsupported|not supported|undeclared|refused|denied|invalid|exceed(?:s|ed|ing)"
    r"|(?:do|does|did)(?: not|n't))\b",
    re.IGNORECASE,
)
_FACT = Pattern(r"\d|['\"`][^'\"`]+['\"`]|\w\.\w|\w_\w|\[[^\]]*\]")
_ELSEWHERE = Pattern(
    r"https?://|^(?:Hint|Note|See|For more|For further|For debugging|Refer|Search for|Compile with|Set |Next steps"
    r"|If you|This (?:error|behaviou?r|could|may|might|is (?:usually|often|likely))|You can|IMPORTANT|PLEASE"
    r"|Developer debug context|Suggested fix|Command:|File \")|^(?:g\+\+|gcc|c\+\+|clang|nvcc|cc|ninja:|FAILED:)",
    re.IGNORECASE,
)
_HEDGED = Pattern(r"^(?:perhaps|maybe|probably|possibly|this may)\b|\bmight\b|\blikely\b", re.IGNORECASE)
_ANNOUNCES = Pattern(
    r":$|\b(?:fail(?:ed|ures?)|errors?|exceptions?|violated|invalid|while|not close|not equal|stopped|could not"
    r"|couldn't|unable|cannot|can't)\b",
    re.IGNORECASE,
)


def telling_words(message: str | None) -> str:
    """The message in a line of the headline."""
    text = _BACKTRACE.split(without_styling(message or ""), maxsplit=1)[0].strip()
    text = _SAVED.sub(lambda found: f": {found[2] or 'a tensor'} {found[1]}", torchscript_error(text) or text)
    statements = _statements(_NOISE.sub("", text).strip())
    if not statements:
        return ""
    at = next((n for n, item in enumerate(statements) if _weight(item) >= 0), 0)
    head, rest = statements[at], statements[at + 1 :]
    best = max(rest, key=_weight, default="")  # the first of several
    if best and _ENOUGH <= _weight(best) > _weight(head) and _ANNOUNCES.search(head):
        short = message_words(head.rstrip(" :."), _HEAD)
        return message_words(f"{short}{'' if short.endswith(('!', '...')) else ':'} {_reason(best)}")
    return message_words(_first_line(text))


def has_facts(message: str | None) -> bool:
    """Whether there is a name, a number or a shape in it, and not only what failed."""
    return _FACT.search(message or "") is not None or len(message or "") > _LONGEST


def torchscript_error(message: str) -> str | None:
    """The error inside a message of TorchScript's interpreter, which comes last, below its own traceback."""
    if not message.startswith(_TORCHSCRIPT):
        return None
    found = list(_INNER.finditer(message))
    return found[-1][0].strip() if found else None


def _weight(statement: str) -> int:
    if _ELSEWHERE.search(statement) or advises(statement):
        return -4
    return (
        4 * bool(_AFTER_REASON.match(statement))
        + 3 * bool(_MARKED.search(statement) or _NESTED.match(statement))
        + 2 * bool(_OPPOSED.search(statement))
        + bool(_FACT.search(statement))
        - 2 * bool(_HEDGED.search(statement))
        - 3 * (len(statement) > _LONGEST)
    )


def _reason(statement: str) -> str:
    """Without the words that only mark it."""
    nested = _NESTED.match(statement)
    if nested is not None:
        return nested["message"]
    marked = _AFTER_REASON.match(statement)
    return marked["reason"] if marked is not None and marked["reason"] else statement


def _statements(text: str) -> list[str]:
    """Sentences, with the lines that go on with one."""
    found: list[str] = []
    for line in text.splitlines()[:_LINES]:
        stripped = line.strip()
        if _RULE.match(stripped):
            continue
        part = _BULLET.sub("", stripped)
        if found and part == stripped and _goes_on(found[-1], line):
            part = f"{found.pop()} {part}"
        found += [item for item in _SENTENCE.split(part) if item]
    return found


def _goes_on(before: str, line: str) -> bool:
    indented, text = line[:1].isspace(), line.strip()
    if _OPTION.match(text):
        return False
    if _PLACE.match(text):
        return True
    if _SUBJECT.match(before):
        return indented
    marked = _AFTER_REASON.match(before)
    if marked is not None and not marked["reason"]:
        return True
    return indented and text[:1].islower() and not before.endswith((".", "!", "?", ":"))


def _first_line(text: str) -> str:
    """The first line, with those of an indented text that end its sentence."""
    lines = _NOISE.sub("", text).splitlines()
    kept = lines[:1]
    for line in lines[1:_WRAPPED]:
        if kept[-1].rstrip().endswith(":"):
            kept.append(line)
            continue
        ends = kept[-1].rstrip().endswith((".", "!", "?"))
        goes_on = line.strip()[:1].islower() or line.strip().startswith("But ")
        if ends or not line[:1].isspace() or not goes_on:
            break
        kept.append(line)
    return " ".join(item.strip() for item in kept)
