"""Numbers that a line passes to a function of C, and that cannot have led its failing line astray, by the source.

`ntop` of `topn(Ap, Aj, ntop, ...)` bounds a later loop alone: it has no part in where `Bj[kk]` lies. Read as text, with
more than has a part: what a variable is made of, the loops and conditions that have it, what a call may change.
"""

from __future__ import annotations

import re

from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    closing,
    declared_name,
    function_around,
    statement_at,
    without_texts,
)
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.pointer_arguments import pointer_arguments
from pytracer.analyze.evidence.syntax.calls import calls_on, without_ctype
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_NO_VARIABLES = (
    "for|if|while|return|else|const|static|auto|register|restrict|struct|unsigned|signed|int|long|short|char|float|double|"
    "bool|void|sizeof|std|vector|string|pair|size_t|ssize_t|u?int\\d+_t|npy_\\w+|Py_ssize_t|ptrdiff_t"
)
_NAME = rf"(?<![\w.>])(?!(?:{_NO_VARIABLES})\b)[A-Za-z_]\w*\b(?!\s*(?:\(|::))"


def without_part(view: ProcessView) -> frozenset[str]:
    """Variables of the program's line, each an argument of the function that failed; empty where that is not known."""
    frame, line = running_frame(view), next(iter(program_frames(view)), None)
    source = own_source(frame) if frame is not None else None
    tree = syntax_tree(view.process.snapshot, line)
    if source is None or source[0].line is None or tree is None or line is None or line.line is None:
        return frozenset()
    text = without_texts("\n".join(source[1]))
    plain = text.split("\n")
    around = function_around(text, statement_at(plain, source[0].line))
    if around is None or _has_own_words(text, text[around.body : closing(text, around.body)]):
        return frozenset()
    parameters = [declared_name(item) for item in around.parameters]
    calls = [pointer_arguments(tree, item) for item in calls_on(tree, line.line)]
    given = [item for item in calls if len(item) == len(parameters) > 1]
    if len(given) != 1:
        return frozenset()
    parts = _reaching(
        text, around, plain[source[0].line - 1], sum(len(item) + 1 for item in plain[: source[0].line - 1])
    )
    named = zip(parameters, map(without_ctype, given[0]), strict=True)
    names = [(parameter, variable(argument)) for parameter, argument in named]
    taken = {name for parameter, name in names if parameter in parts}
    return frozenset(name for _, name in names if name is not None and name not in taken)


def _has_own_words(text: str, body: str) -> bool:
    """Whether a function has a lambda, or macros of the file, which are not read."""
    macros = "|".join(re.findall(r"(?m)^\s*#\s*define\s+(\w+)\(", text))
    lambdas = re.search(r"(?<![\w\])])\s*\[\s*[&=]?[\w\s,&=]*\]\s*(?:\([^()]*\)\s*)?\{", body)
    return "#define" in body or lambdas is not None or bool(macros and re.search(rf"\b(?:{macros})\s*\(", body))


def _reaching(text: str, around: Function, statement: str, place: int) -> set[str]:
    """The names that have a part in where the elements of a statement at a place lie, and in how often it runs."""
    body = text[around.body : closing(text, around.body)]
    bases, inner = _indexed(statement)
    found = {*bases}
    inner |= _of_loops(text, around, place)
    left = inner.union(*(_made_of(body, name, elements=False) for name in bases - inner))
    while left:
        name = left.pop()
        found.add(name)
        bases.discard(name)
        left |= _made_of(body, name, elements=True) - (found - bases)
    return found


def _of_loops(text: str, around: Function, place: int) -> set[str]:
    """Of the loops around a place: their heads, and the conditions that leave them."""
    found: list[str] = []
    for match in re.finditer(r"\b(?:for|while)\s*\(|\bdo\s*(?=\{)", text[around.body : place]):
        at, is_do = around.body + match.end(), not match[0].endswith("(")
        head = at - 1 if is_do else closing(text, at - 1)
        start = text.find("{", head + 1) if head is not None else -1
        if head is None or start < 0 or text[head + 1 : start].strip():
            continue
        end = closing(text, start)
        if end is None or not start < place < end:
            continue
        tail = re.match(r"\s*while\s*\([^;]*", text[end + 1 :]) if is_do else None
        found += [text[at:head], tail[0] if tail is not None else ""]
        leaves = r"\bif\s*\((?P<asks>[^;{}]*)\)\s*\{?[^;{}]*\b(?:break|return|goto)\b"
        found += [item["asks"] for item in re.finditer(leaves, text[start:end])]
    return {name for item in found for name in re.findall(_NAME, item)}


def _indexed(statement: str) -> tuple[set[str], set[str]]:
    """The arrays that it takes elements of, and all other names: what an outer array holds plays no part."""
    inner, at = "", 0
    bases: set[str] = set()
    for match in re.finditer(rf"(?P<name>{_NAME})\s*(?=\[)", statement):
        end = closing(statement, match.end())
        if match.start() < at or end is None:
            continue
        bases.add(match["name"])
        inner, at = f"{inner} {statement[at : match.start()]} {statement[match.end() : end]}", end + 1
    return bases, set(re.findall(_NAME, f"{inner} {statement[at:]}"))


def _made_of(body: str, name: str, *, elements: bool) -> set[str]:
    """What a variable is made of; what a loop or condition with it has; what a call may set it by.

    `elements`: also what is stored into it as an array.
    """
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    stored = r"(?:\[[^;{}]*\]\s*)?" if elements else ""
    parts = [match[0] for match in re.finditer(rf"{own}\s*{stored}(?:[-+*/%&|^]|<<|>>)?=(?!=)[^;]*", body)]
    parts += [
        match[0] for match in re.finditer(rf"\b\w[\w:<>, ]*\s[*&]*{own}\s*[({{][^;]*;", body)
    ]  # `vector<int> x(n);`
    parts += [match[0] for match in re.finditer(rf"{own}\s*(?:\.|->)\s*\w+\s*\([^;]*;", body)]
    parts += [match[0] for match in re.finditer(rf"{own}\s*(?:\.|->)\s*\w[\w.\[\]]*\s*=(?!=)[^;]*;", body)]
    parts += [match[0] for match in re.finditer(rf"(?<=[;{{}}])\s*[\w:]+\s*\([^;{{}}]*{own}(?!\s*\[)[^;]*;", body)]
    parts += [match[0] for match in re.finditer(rf"\w+\s*\([^;{{}}]*&\s*{own}[^;]*;", body)]
    if not elements:
        return {item for part in parts for item in re.findall(_NAME, part)}
    parts += [match["name"] for match in re.finditer(rf"\*\s*(?P<name>\w+)\s*=\s*(?:\([^()]*\)\s*)?&?\s*{own}", body)]
    for match in re.finditer(r"\b(?:for|while|if)\s*\(", body):
        head = body[match.start() : closing(body, match.end() - 1)]
        if re.search(own, head):
            parts.append(head)
    return {item for part in parts for item in re.findall(_NAME, part)}
