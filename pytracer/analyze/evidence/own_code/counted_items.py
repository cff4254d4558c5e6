"""What a function of C counts in a field of the object that it makes: items of a loop, or only those that it can open.

`while (fgets(line, ...)) { img = fopen(line, "rb"); if (!img) continue; ... l->paths[l->n++] = ...; }`: read as text,
without a compiler. One statement of the file may change the field, besides setting it to 0 where it is made; the local
variable that the field is set from behind the loop counts as well, and so does push_back() of a vector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.c_divisions import plain
from pytracer.analyze.evidence.own_code.c_text import closing, declared_name, defined
from pytracer.analyze.evidence.own_code.c_values import SETS

_LOOP, _IF = Pattern(r"\b(?:while|for)\s*\("), Pattern(r"\bif\s*\(")
_LEAVES = Pattern(r"\b(?:break|return|goto)\b")
_ENDS, _NOTHING = Pattern(r"\b(?:return\b|goto\b)(?P<value>[^;]*)"), ("NULL", "nullptr", "0")
_CONTINUES = Pattern(r"\s*(?:continue\s*;|\{[^{}]*\bcontinue\s*;\s*\})")
_SILENT = Pattern(r"\s*\{?\s*continue\b")
_OPENS = Pattern(r"\b(?P<name>fopen(?:64)?|open(?:64)?|gzopen|opendir|ifstream|is_open)\b")
_FINDS = Pattern(r"\b(?P<name>access|stat(?:64)?|lstat|exists|is_regular_file)\b\s*\(")
_READS = Pattern(r"\b(?P<name>\w*imread|stbi_load\w*|\w*load_image\w*|\w*read_image\w*)\b\s*\(")
_DECIDE = (
    (_OPENS, "can open", "cannot open"),
    (_FINDS, "finds", "does not find"),
    (_READS, "can read", "cannot read"),
)
_GIVEN = Pattern(r"\b(?:fopen(?:64)?|open(?:64)?|gzopen|opendir|(?:std::)?ifstream\s+\w+)\s*\(\s*(?P<name>\w+)\b")
_QUOTED = 50


class CountedItems(msgspec.Struct, frozen=True):
    """`loop`: the line of its loop. `opener`: what decides whether an item counts; `does`, `fails`: what it does.

    `test`: the condition of line `at` instead, which is about no file. `silent`: nothing is printed or returned there.
    `file`: the place of the parameter that names the file which the function reads.
    """

    loop: int
    at: int
    opener: str | None
    does: str
    fails: str
    test: str | None
    silent: bool
    file: int | None

    @property
    def counts(self) -> str:
        """`counts only what fopen() can open`."""
        if self.opener is not None:
            return f"counts only what {self.opener}() {self.does}"
        return (
            f"counts only what `{self.test}` does not keep out"
            if self.test is not None
            else "counts what its loop reads"
        )


def counted_items(text: str, member: str, maker: str, *, vector: bool) -> CountedItems | None:
    """None where more than one statement changes the field, or the loop may end before it has counted.

    Args:
        text: The whole file.
        member: The field; with `vector` the number of elements of that.
        maker: The function that returned the object.
        vector: Whether the divisor is its size().
    """
    clean = plain(text)
    functions = defined(clean, maker)
    end = closing(clean, functions[0].body) if len(functions) == 1 else None
    if end is None:
        return None
    body = (functions[0].body + 1, end)
    place = _grows(clean, member, body) if vector else _increment(clean, member, body)
    loop = _loop_around(clean, place, body) if place is not None else None
    if place is None or loop is None or _LEAVES.search(clean, loop[1], place):
        return None
    if any(match["value"].strip(" ()") not in _NOTHING for match in _ENDS.finditer(clean, body[0], loop[0])):
        return None  # the object is returned before anything was counted
    tests = [*_tests(clean, loop[1], place)]
    if any(negated is None for *_, negated in tests):
        return None
    line = clean.count("\n", 0, loop[0]) + 1
    names = [declared_name(item) for item in functions[0].parameters]
    given = _GIVEN.search(clean, body[0], loop[0])
    file = names.index(given["name"]) if given is not None and given["name"] in names else None
    for at, condition, silent, _ in tests:
        found = _opener(condition, clean[loop[1] : at])
        if found is not None:
            return CountedItems(line, clean.count("\n", 0, at) + 1, *found, None, silent, file)
    if len(tests) > 1:
        return None
    if not tests:
        return CountedItems(line, line, None, "", "", None, True, file)
    at, condition, silent, _ = tests[0]
    shown = shortened(" ".join(condition.split()), _QUOTED)
    return CountedItems(line, clean.count("\n", 0, at) + 1, None, "", "", shown, silent, file)


def _grows(clean: str, member: str, body: tuple[int, int]) -> int | None:
    """The only push_back() of a vector of the object."""
    found = [
        *re.finditer(rf"(?:->|\.)\s*{member}\s*\.\s*(?P<how>push_back|emplace_back|\w+)\s*\(|[^\w]{member}\s*=", clean)
    ]
    kinds = [match for match in found if match["how"] not in ("size", "reserve", "data", "begin", "end", "empty", "at")]
    inside = len(kinds) == 1 and body[0] <= kinds[0].start() < body[1]
    return kinds[0].start() if inside and kinds[0]["how"] in ("push_back", "emplace_back") else None


def _increment(clean: str, member: str, body: tuple[int, int]) -> int | None:
    """Where the field, or the local variable that it is set from, grows by one."""
    if re.search(rf"(?<![&\w)\]])\s*&\s*[\w.>-]+(?:->|\.)\s*{member}\b", clean):
        return None  # whoever has its address may set it
    sets = (
        rf"(?:->|\.)\s*{member}\s*(?P<how>{SETS})\s*(?P<value>[^;,)]*)|"
        rf"(?P<before>\+\+|--)\s*[\w.>-]+(?:->|\.)\s*{member}\b"
    )
    found = [
        match
        for match in re.finditer(sets, clean)
        if not (match["how"] == "=" and match["value"].strip() == "0" and body[0] <= match.start() < body[1])
    ]
    if len(found) != 1 or not body[0] <= found[0].start() < body[1]:
        return None
    if _is_one(found[0]):
        return found[0].start()
    name = (found[0]["value"] or "").strip()
    if found[0]["how"] != "=" or not re.fullmatch(r"[A-Za-z_]\w*", name):
        return None
    own = rf"(?<![\w.>&]){name}\s*(?P<how>{SETS})\s*(?P<value>[^;,)]*)|(?P<before>\+\+|--)\s*{name}\b"
    local = list(re.compile(own).finditer(clean, *body))
    begins = [match for match in local if match["how"] == "=" and match["value"].strip() == "0"]
    grows = [match for match in local if match not in begins]
    ones = len(begins) == 1 and len(grows) == 1 and _is_one(grows[0]) and begins[0].start() < grows[0].start()
    return grows[0].start() if ones and grows[0].start() < found[0].start() else None


def _is_one(match: re.Match[str]) -> bool:
    """`++`, `+= 1`."""
    return "++" in (match["how"], match["before"]) or (match["how"] == "+=" and match["value"].strip() == "1")


def _loop_around(clean: str, place: int, body: tuple[int, int]) -> tuple[int, int] | None:
    """Where the only loop around a place begins, and its body."""
    found = []
    for match in _LOOP.finditer(clean, *body):
        head = closing(clean, match.end() - 1)
        if head is not None and head < place:
            start, end = _statement(clean, head + 1)
            if start <= place < end:
                found.append((match.start(), start))
    return found[0] if len(found) == 1 else None


def _statement(clean: str, at: int) -> tuple[int, int]:
    """The braces, or the statement, from a place on."""
    start = at + len(clean[at:]) - len(clean[at:].lstrip())
    end = closing(clean, start) if clean[start : start + 1] == "{" else clean.find(";", start)
    return start, end if end is not None and end >= 0 else len(clean)


def _tests(clean: str, start: int, place: int) -> Iterator[tuple[int, str, bool, bool | None]]:
    """The conditions that decide whether the place is reached: where, the text, whether it is silent, and whether the
    place is reached where it does not hold; None of one that is not understood.
    """
    for match in _IF.finditer(clean, start, place):
        head = closing(clean, match.end() - 1)
        if head is None or head >= place:
            continue
        condition = clean[match.end() : head]
        inside = _statement(clean, head + 1)
        if inside[0] <= place < inside[1]:
            yield match.start(), condition, re.match(r"[\s}]*else\b", clean[inside[1] :]) is None, False
        elif _CONTINUES.match(clean, head + 1):
            yield match.start(), condition, _SILENT.match(clean, head + 1) is not None, True
        elif re.search(r"\bcontinue\b", clean[inside[0] : inside[1]]):
            yield match.start(), condition, False, None


def _opener(condition: str, before: str) -> tuple[str, str, str] | None:
    """`fopen`, `can open`, `cannot open`: what made a variable of the condition, or what that calls."""
    texts = [condition]
    for name in dict.fromkeys(re.findall(r"(?<![\w.>])[A-Za-z_]\w*", condition)):
        texts += re.findall(rf"(?<![\w.>]){name}\s*=(?!=)\s*([^;]*)", before)
        texts += [f"ifstream({name}" for _ in re.findall(rf"\bifstream\s+{name}\b", before)]
    for pattern, does, fails in _DECIDE:
        found = {match["name"] for text in texts for match in pattern.finditer(text)} - {"is_open"}
        if len(found) == 1:
            return found.pop(), does, fails
    return None
