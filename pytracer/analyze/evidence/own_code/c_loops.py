"""The loops of C around a place: how far down their counters come, by `for` and `while` as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing

_HEAD = Pattern(r"(?<![\w.>])(?P<how>for|while|if)\s*\(")
_MOST = 64


class Loop(msgspec.Struct, frozen=True):
    """`start`: of the word in the file; `body` and `end`: around what it repeats. A `while` has no `init`."""

    start: int
    body: int
    end: int
    init: str
    condition: str
    step: str

    def least(self, name: str) -> int | None:
        """The least number that a counter has inside of the loop, where the source has it."""
        own = rf"(?<![\w.>]){re.escape(name)}"
        if re.search(r"&&|\|\|", self.condition):
            return None
        if re.fullmatch(rf"\s*(?:{own}\s*\+\+|\+\+\s*{own}|{own}\s*\+=\s*\w+)\s*", self.step):
            begins = re.search(rf"{own}\s*=\s*(\d+)\s*$", self.init.rsplit(",", 1)[-1])
            return int(begins[1]) if begins is not None else None
        condition = self.condition.strip()
        if not re.search(rf"{own}\s*(?:--|-=)|--\s*{own}", f"{condition};{self.step}"):
            return None
        if re.fullmatch(rf"{own}\s*--(?:\s*(?:>|!=)\s*0)?", condition):
            return 0
        match = re.fullmatch(rf"{own}\s*(?P<how>>=?)\s*(?P<number>-?\d+)", condition)
        if match is not None:
            return int(match["number"]) + (match["how"] == ">")
        return 0 if re.fullmatch(rf"0\s*<=\s*{own}|-1\s*<\s*{own}|{own}\s*!=\s*-1", condition) else None

    def rounds(self, name: str) -> str | None:
        """`t_y`, of a counter that goes down to 0 from `t_y - 1`, or from `t_y` and is lowered before."""
        own = re.escape(name)
        first = re.search(rf"(?<![\w.>]){own}\s*=\s*(?P<value>[A-Za-z_]\w*)\s*(?P<less>-\s*1)?\s*$", self.init)
        lowered = re.search(rf"(?<![\w.>]){own}\s*--", self.condition) is not None
        if first is None or self.least(name) != 0 or lowered == (first["less"] is not None):
            return None
        if not lowered and not re.fullmatch(rf"\s*(?:{own}\s*--|--\s*{own}|{own}\s*-=\s*1)\s*", self.step):
            return None
        return first["value"]

    def begins(self, name: str, before: str) -> str | None:
        """What a variable is set to before the loop, where that is done once."""
        found = re.findall(rf"(?<![\w.>]){re.escape(name)}\s*=(?!=)\s*([^;,]*)", f"{before};{self.init}")
        return found[0].strip() if len(found) == 1 else None

    def steps_down_once(self, name: str, text: str) -> bool:
        """Whether the loop changes a variable by one `k--` alone, which is in no further loop."""
        own = rf"(?<![\w.>]){re.escape(name)}\b"
        inside = text[self.body : self.end]
        steps = [*re.finditer(rf"{own}\s*(?:--|-=\s*1\b)|--\s*{own}", inside)]
        others = re.search(
            rf"{own}\s*(?:=(?!=)|\+\+|[+*/%&|^]=|-=(?!\s*1\b)|<<=|>>=)|\+\+\s*{own}|(?<!&)&\s*{own}", inside
        )
        if len(steps) != 1 or others is not None:
            return False
        return next(loops_around(text, self.body, self.body + steps[0].start()), None) is None


def asks_for(name: str, text: str) -> bool:
    """Whether a text compares a variable with a number, chooses by it, or takes it for true or false."""
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    how = r"\s*(?:[<>]=?|[!=]=)\s*"
    compares = rf"{own}{how}\(?-?\d|\d{how}{own}|{own}{how}\w+\s*\?|\w{how}{own}\s*\?"
    alone = rf"(?:\b(?:if|while)\s*\(|&&|\|\||!|(?<![=!<>])=)\s*{own}\s*(?:\)|&&|\|\||\?)|\(\s*{own}\s*(?:&&|\|\||\?)"
    return re.search(compares, text) is not None or re.search(alone, text) is not None


def loops_around(text: str, low: int, place: int) -> Iterator[Loop]:
    """Those whose body has a place, the innermost first; of the text behind `low`."""
    found = []
    for match in [*_HEAD.finditer(text, low, place)][-_MOST:]:
        end = closing(text, match.end() - 1) if match["how"] != "if" else None
        last = body_end(text, end + 1) if end is not None else None
        if end is None or last is None or not end < place < last:
            continue
        parts = text[match.end() : end].split(";")
        if match["how"] == "for" and len(parts) == 3:
            found.append(Loop(match.start(), end + 1, last, *parts))
        elif match["how"] == "while":
            found.append(Loop(match.start(), end + 1, last, "", parts[0], ""))
    return reversed(found)


def body_end(text: str, at: int) -> int | None:
    """Behind the statement that begins there: a block, another loop or `if`, or all up to a semicolon."""
    for _ in range(_MOST):
        while at < len(text) and text[at].isspace():
            at += 1
        if text[at : at + 1] == "{":
            return closing(text, at)
        head = _HEAD.match(text, at)
        end = closing(text, head.end() - 1) if head is not None else None
        if end is None:
            break
        at = end + 1
    last = text.find(";", at)
    return last + 1 if last >= 0 else None
