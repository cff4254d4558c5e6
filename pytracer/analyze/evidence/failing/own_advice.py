"""What a message itself advises: libraries often say what to do, behind the sentence that says what is wrong."""

from __future__ import annotations

import re

from pytracer._patterns import Pattern
from pytracer._text import shortened

_SENTENCE = Pattern(r"(?<=[a-z`'\")\]])[.!?](?:\s+|$)|\n+|; ")
_ADVISES = Pattern(
    r"^(?:please|try|use|consider|pass|set|call|make sure|ensure|check that|specify|switch to|upgrade|install|run"
    r"|you (?:can|may|should|need to|must|might)|(?:if|to) .{3,80}?, (?:please |you (?:can|may|should|need to) )?"
    r"(?:use|try|set|pass|call|consider|add|specify|install|make)|did you (?:mean|forget)|instead,? )\b",
    re.IGNORECASE,
)
_NO_ADVICE = Pattern(
    r"(?:file|open|report) an? (?:issue|bug)|report (?:this|a bug)|github\.com|^use of ", re.IGNORECASE
)
_LONGEST, _MOST = 160, 2


def own_advice(message: str | None) -> str | None:
    """The sentences of a message that advise, as they are: `Please clone() the tensor before performing ...`."""
    sentences = [" ".join(item.split()) for item in _SENTENCE.split((message or "")[:4000])]
    found = [item for item in sentences[1:] if _ADVISES.match(item) and not _NO_ADVICE.search(item)]
    if not found:
        return None
    return " ".join(f"{shortened(item, _LONGEST).rstrip('.')}." for item in dict.fromkeys(found[:_MOST]))


def advises(sentence: str) -> bool:
    """Whether it says what to do."""
    return _ADVISES.match(sentence) is not None
