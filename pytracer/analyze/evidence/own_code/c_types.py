"""Whether an expression of C is a whole number or a float, as far as its source says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import split, without_parentheses

Kind = Literal["float", "integer"] | None

_FLOATS = frozenset({"float", "double", "half", "Half", "BFloat16", "__half", "float16_t", "float32_t", "float64_t"})
_INTEGERS = frozenset({"int", "long", "short", "char", "unsigned", "signed", "size_t", "ssize_t", "bool", "ptrdiff_t"})
_OF_FLOATS = Pattern(r"^(?:std::)?(?:sqrt|exp|log|log2|log10|pow|fabs|floor|ceil|round|sin|cos|tan|fmin|fmax)f?$")
_OF_INTEGERS = frozenset({"rand", "random", "strlen", "sizeof", "atoi", "lround", "abs", "labs", "omp_get_num_threads"})
_CAST = Pattern(r"^\(\s*(?P<type>[A-Za-z_][\w:\s]*?)\s*\)\s*(?=[\w(])|^static_cast<\s*(?P<cpp>[\w:\s]+?)\s*>\s*(?=\()")
_LITERAL = Pattern(r"^(?:0[xX][\da-fA-F]+|\d+)[uUlL]*$")
_FLOAT_LITERAL = Pattern(r"^(?:\d+\.\d*|\.\d+|\d+(?=[eEfF]))(?:[eE][-+]?\d+)?[fFlL]?$")
_NAME = Pattern(r"^[-+~*&\s]*(?P<name>[A-Za-z_]\w*)\s*(?:\[.*\])?$", re.DOTALL)
_CALL = Pattern(r"^(?P<name>[A-Za-z_][\w:]*)\s*\(.*\)$", re.DOTALL)
_QUALIFIERS = Pattern(r"\b(?:const|static|register|volatile|restrict|__restrict__|inline|extern|std::)\s*|[*&]")
_TYPED = Pattern(r"^(?P<type>(?:\w+\s+)*?\w+)\s+(?P<name>\w+)\s*(?:[\[=:(].*)?$", re.DOTALL)


def kind_of(text: str, declarations: Sequence[str], called: Callable[[str], Kind]) -> Kind:
    """None where it may be either.

    Args:
        text: An expression.
        declarations: Parameters and statements of its function: `float *x`, `int i = 0, n = 4`.
        called: The kind of what a function returns, by its name.
    """
    text = without_parentheses(text)
    parts = _operands(text)
    if len(parts) > 1:
        kinds = [kind_of(item, declarations, called) for item in parts]
        return "float" if "float" in kinds else None if None in kinds else "integer"
    cast = _CAST.match(text)
    if cast is not None and kind_of_type(cast["type"] or cast["cpp"]) is not None:
        return kind_of_type(cast["type"] or cast["cpp"])
    if _LITERAL.match(text):
        return "integer"
    if _FLOAT_LITERAL.match(text):
        return "float"
    call = _CALL.match(text)
    if call is not None:
        name = call["name"]
        return "float" if _OF_FLOATS.match(name) else "integer" if name in _OF_INTEGERS else called(name)
    name_of = _NAME.match(text)
    return _declared(name_of["name"], declarations) if name_of is not None else None


def kind_of_type(text: str) -> Kind:
    """Of `unsigned long`, `const float *`."""
    words = _QUALIFIERS.sub(" ", text).split()
    if any(word in _FLOATS for word in words):
        return "float"
    return "integer" if words and all(word in _INTEGERS or _is_sized(word) for word in words) else None


def returned_kind(name: str, file: str) -> Kind:
    """Of what the functions of that name in a file return."""
    heads = re.findall(
        rf"(?m)^\s*((?:[\w:]+[\s*&]+)+){re.escape(name.rpartition('::')[2])}\s*\([^;{{}}]*\)\s*\{{", file
    )
    kinds = {kind_of_type(item) for item in heads}
    return kinds.pop() if len(kinds) == 1 else None


def _is_sized(word: str) -> bool:
    return re.fullmatch(r"u?int(?:_fast|_least)?\d+_t|u?intptr_t|[iu]\d{1,2}", word) is not None


def _declared(name: str, declarations: Sequence[str]) -> Kind:
    """By its declarations: None where there is none, or they differ."""
    kinds = {kind for item in declarations if name in item for kind in _kinds(name, item)}
    return kinds.pop() if len(kinds) == 1 else None


def _kinds(name: str, declaration: str) -> list[Kind]:
    first, *others = split(_QUALIFIERS.sub(" ", declaration).strip()) or ("",)
    match = _TYPED.match(" ".join(first.split()))
    if match is None or match["type"] in ("return", "else", "goto", "case"):
        return []
    names = [match["name"], *(found[0] for item in others if (found := re.match(r"\w+", item)) is not None)]
    return [kind_of_type(match["type"])] if name in names else []


def _operands(text: str) -> list[str]:
    """Between the arithmetic operators that no bracket encloses."""
    parts, depth, before = [""], 0, ""
    for at, letter in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        operator = letter in "+-*/%" and depth == 0 and re.search(r"[\w)\]]\s*$", before) is not None
        if operator and "->" not in text[at : at + 2] and not _CAST.match(before.strip() + "x"):
            parts.append("")
        else:
            parts[-1] += letter
        before += letter
    return [item for item in parts if item.strip()]
