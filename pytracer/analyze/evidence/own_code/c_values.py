"""What an expression of C is made of, and its number: by the source, and by the numbers that Python passed.

A variable is followed only where one assignment gives it its value and nothing changes it later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_divisions import Body
from pytracer.analyze.evidence.own_code.c_text import closing, without_parentheses
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value

_HOPS = 8
_CAST = Pattern(
    r"\(\s*(?:const\s+)?(?:(?:un)?signed|short|int|long|size_t|ssize_t|u?int\d+_t)(?:\s+\w+)*\s*\)\s*(?=[\w(])"
)
_NAME = Pattern(r"^[A-Za-z_]\w*$")
_LITERAL = Pattern(r"\b(0[xX][\da-fA-F]+|\d+)[uUlL]+\b")
_MEMBER = Pattern(r"^(?P<name>[A-Za-z_]\w*)\s*->\s*(?P<member>\w+)$")
SETS = r"=(?!=)|\+\+|--|(?:[-+*/%&|^]|<<|>>)="  # behind what it changes
_NARROW = Pattern(r"\bshort\b|int(?:8|16)_t")
_WRAPS = 1 << 32


class Term(msgspec.Struct, frozen=True):
    """An expression in a function. `parameter`: its place, where it is one of the function that Python called.

    `member`: of the structure that this parameter points at, which the expression is.
    """

    text: str
    body: Body
    parameter: int | None = None
    member: str | None = None


def parameters_in(term: Term) -> list[Term]:
    """Those of the function that Python called, of a sum or product of nothing else; empty where it has other parts."""
    text = _without_casts(term.text)
    if re.search(r"[\[(.?]|->", re.sub(r"[()]", "", text)) or re.search(r"\w\s*\(", text):
        return []
    ends = [resolved(name, term.body)[-1] for name in dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*", text))]
    return ends if all(item.parameter is not None for item in ends) else []


Numbers = Callable[[Term], int | None]  # of a parameter of the function that Python called, or of a member of one


class Elements(msgspec.Struct, frozen=True):
    """Those of the parameter of a function; `differs`: `x[i + 1] - x[i]`."""

    body: Body
    parameter: int | None
    differs: bool


def resolved(text: str, body: Body) -> list[Term]:
    """What an expression is, step by step, itself first."""
    terms = [_term(text, body)]
    for _ in range(_HOPS):
        inner = _inner(terms[-1])
        if inner is None:
            break
        terms.append(inner)
    return terms


def _term(text: str, body: Body) -> Term:
    text = without_parentheses(text)
    own = text in body.parameters and body.outer is None and not _is_set(text, body.text)
    return Term(text, body, body.parameters.index(text) if own else None)


def _inner(term: Term) -> Term | None:
    """What a variable was given: by the caller, or by its only assignment."""
    name = _without_casts(term.text)
    if not _NAME.match(name) or term.parameter is not None or _changes(name, term.body.text):
        return None
    body = term.body
    if name in body.parameters and body.outer is None:
        return _term(name, body) if name != without_parentheses(term.text) and not _NARROW.search(term.text) else None
    if name in body.parameters and _is_set(name, body.text):
        return None
    if name in body.parameters:
        place = body.parameters.index(name)
        return _term(body.given[place], body.outer) if body.outer is not None and place < len(body.given) else None
    value = assigned_value([body.text], name)
    return _term(value, body) if value is not None and not re.search(rf"\b{name}\b", value) else None


def _is_set(parameter: str, text: str) -> bool:
    """Whether a function gives a parameter another value."""
    set_anew = re.search(rf"(?<![\w.>]){re.escape(parameter)}\s*=(?!=)", text) is not None
    return set_anew or _changes(parameter, text)


def _changes(name: str, text: str) -> bool:
    """Whether a variable is changed after it was set: by `n--`, `n /= 2` or `&n`; not by `&n->seed`."""
    word = rf"(?<![\w.>]){re.escape(name)}\b"
    return (
        re.search(
            rf"{word}\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)=)|(?:\+\+|--)\s*{word}|(?<![&\w)\]])\s*&\s*{word}(?!\s*(?:\[|->))",
            text,
        )
        is not None
    )


def elements(term: Term) -> Elements | None:
    """Of an expression that is one element of an array, or the difference of two of the same one."""
    text = _without_casts(term.text)
    match = re.match(r"^(?P<name>[A-Za-z_]\w*)\s*(?=\[)", text)
    end = closing(text, match.end()) if match is not None else None
    if match is None or end is None:
        return None
    index, rest = text[match.end() + 1 : end], text[end + 1 :].strip()
    if not rest:
        return _of_array(match["name"], term.body, differs=False)
    other = re.match(rf"^-\s*{match['name']}\s*\[(?P<index>.*)\]$", rest, re.DOTALL)
    if other is None:
        return None
    later, former = re.sub(r"\s", "", index), re.sub(r"\s", "", other["index"])
    near = later == f"{former}+1" or later == f"1+{former}" or former == f"{later}-1"
    return _of_array(match["name"], term.body, differs=True) if near else None


def index_arrays(term: Term) -> list[Term]:
    """Parameters that the index of a difference of two elements is read out of; empty where it may be another number.

    `ids` of `ptr[ids[k] + 1] - ptr[ids[k]]`; each one that a line sets `v` from, of `ptr[v + 1] - ptr[v]`.
    """
    text = re.sub(r"\s", "", _without_casts(term.text))
    match = re.match(r"^\w+\[(?P<later>.*)\]-\w+\[(?P<former>.*)\]$", text)
    base = min(match["later"], match["former"], key=len) if match is not None else ""
    values = _values_of(base, term.body) if _NAME.match(base) else [base]
    names = [re.match(r"^(?P<name>[A-Za-z_]\w*)\s*\[.*\]$", _without_casts(item), re.S) for item in values]
    ends = [resolved(item["name"], term.body)[-1] for item in names if item is not None]
    known = [item for item in ends if item.parameter is not None]
    return known if len(known) == len(values) else []


def _values_of(name: str, body: Body) -> list[str]:
    """What each assignment to a variable of a function gives it; empty where something else changes it."""
    if _changes(name, body.text) or name in body.parameters:
        return []
    return [item.strip() for item in re.findall(rf"(?<![\w.>]){name}\s*=(?!=)\s*([^;]*)", body.text)]


def _of_array(name: str, body: Body, *, differs: bool) -> Elements:
    end = resolved(name, body)[-1]
    kept = end.parameter is not None and _only_read(end.parameter, end.body)
    return Elements(end.body, end.parameter if kept else None, differs)


def _only_read(parameter: int, body: Body) -> bool:
    """Whether the elements are still those that were passed: by a const pointer, or only read by their index."""
    name = re.escape(body.parameters[parameter])
    sets = (
        rf"{name}\s*\[[^\]]*\]\s*(?:=(?!=)|[-+*/|&^%]=|\+\+|--)|(?:\+\+|--)\s*{name}\s*\[|(?<![\w.>]){name}\b(?!\s*\[)"
    )
    return "const" in body.function.parameters[parameter] or re.search(sets, body.text) is None


def number_of(text: str, body: Body, file: str, passed: Numbers, hops: int = _HOPS) -> int | None:
    """None where a part of the expression is not known.

    Args:
        text: An expression.
        body: Its function.
        file: Its whole text, with the macros.
        passed: The number of a parameter of the function that Python called, or of a member of one.
        hops: Variables that are followed at most.
    """
    if hops == 0:
        return None
    try:
        node = ast.parse(_for_python(text), mode="eval").body
        return _number(node, body, file, passed, hops)
    except (SyntaxError, ValueError, ArithmeticError):
        return None


def _for_python(text: str) -> str:
    """`r .batch / 4` of `(int)r->batch / 4u`."""
    return _LITERAL.sub(r"\1", _without_casts(without_parentheses(text))).replace("->", " .").strip()


def quotient_of(term: Term) -> tuple[str, str] | None:
    """`r->batch` and `4` of `r->batch / 4`."""
    text = _without_casts(term.text).strip()
    try:
        node = ast.parse(text.replace("->", " ."), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or not text.isascii() or "\n" in text:
        return None
    return text[node.left.col_offset : node.left.end_col_offset], text[
        node.right.col_offset : node.right.end_col_offset
    ]


def member_of(text: str, body: Body) -> Term | None:
    """Of `r->batch`, where Python passed `r`, and neither the function nor one that called it sets that before."""
    match = _MEMBER.match(without_parentheses(text))
    end = resolved(match["name"], body)[-1] if match is not None else None
    if match is None or end is None or end.parameter is None:
        return None
    at: Body | None = body
    while at is not None:
        name = rf"(?:->|\.)\s*{match['member']}\b"
        if re.search(rf"{name}\s*(?:{SETS})|(?:\+\+|--|&)\s*[\w.>-]+{name}", at.text):
            return None
        at = at.outer
    return msgspec.structs.replace(end, text=without_parentheses(text), member=match["member"])


def _number(node: ast.expr, body: Body, file: str, passed: Numbers, hops: int) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sizeof":
        return 1  # or more: what counts is that it is no 0
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        member = member_of(f"{node.value.id}->{node.attr}", body)
        return passed(member) if member is not None else None
    if isinstance(node, ast.Name):
        term = _term(node.id, body)
        if term.parameter is not None:
            value = passed(term)
            return value if value is None or value == 0 or value % _WRAPS else None  # 2**32 is 0 as an int
        inner = _inner(term)
        if inner is not None:
            return number_of(inner.text, inner.body, file, passed, hops - 1)
        macro = re.findall(rf"(?m)^[ \t]*#[ \t]*define[ \t]+{node.id}[ \t]+\(?(\d+)[uUlL]*\)?[ \t]*(?:/[/*].*)?$", file)
        constant = re.findall(rf"\bconst(?:expr)?\s+(?:[\w:]+\s+)+{node.id}\s*=\s*(\d+)\s*;", file)
        found = {int(item) for item in (*macro, *constant)}
        return found.pop() if len(found) == 1 else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = (_number(item, body, file, passed, hops) for item in (node.left, node.right))
    if left is None or right is None:
        return None
    if isinstance(node.op, (ast.Div, ast.FloorDiv)):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1) if right else None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else None


def _without_casts(text: str) -> str:
    """`offsets[u + 1] - offsets[u]` of `(int)(offsets[u + 1] - offsets[u])`."""
    return without_parentheses(_CAST.sub("", text))
