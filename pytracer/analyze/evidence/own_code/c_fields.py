"""Numbers in a structure of C that Python only has the address of: `r->batch`, where the line passes the handle `r`.

By the memory that the recording kept, laid out as the source declares it; else by the C function that returned the
handle, where that is the only one that sets the field, to what Python passed.
"""

from __future__ import annotations

import ast
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.native_stack import memory_word
from pytracer.analyze.evidence.own_code.c_divisions import plain
from pytracer.analyze.evidence.own_code.c_text import declared_name, function_around
from pytracer.analyze.evidence.own_code.c_values import SETS, Term
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.struct_fields import c_structures
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, without_ctype
from pytracer.analyze.view import ProcessView

_BITS, _MOST_BYTES = 8, 8
_UNSIGNED = Pattern(r"\bunsigned\b|\bu?size_t\b|\buint|\buintptr")
_NO_INTEGERS = Pattern(r"\b(?:float|double)\b")
_QUALIFIERS = Pattern(r"\b(?:const|volatile|struct|restrict|__restrict__)\b|\*")


class FieldSource(msgspec.Struct, frozen=True):
    """`expression` at `line` is what the call of `function` passes for the field; `node` at `spot`: the same."""

    function: str
    expression: str
    node: ast.expr
    spot: Spot
    line: int


class CFields:
    """Those of the structures that the source `text` declares."""

    def __init__(self, view: ProcessView, text: str, arrays: PassedArrays) -> None:
        self._view = view
        self._arrays = arrays
        self._plain = plain(text)
        self._declared = {item.name: item for item in c_structures(text, "")}

    def number(self, term: Term) -> int | None:
        """Of a member of a parameter."""
        kept = self.kept(term)
        if kept is not None:
            return kept
        source = self.source(term)
        return self._arrays.number(source.node, source.spot) if source is not None else None

    def source(self, term: Term) -> FieldSource | None:
        """What the line that made the handle passes for a field."""
        given = self._given(term)
        setter = self._setter(term.member or "") if given is not None else None
        if given is None or setter is None:
            return None
        function, place = setter
        made = self._arrays.back.made(*given, calls=False)
        parts = (*made.through, (made.node, made.spot))
        calls = {id(part): (part, at) for part, at in parts if _is_call(part, function)}
        if len(calls) != 1:
            return None
        call, at = next(iter(calls.values()))
        passed = _argument(call, place)
        line = getattr(call, "lineno", at.line)
        return FieldSource(function, ast.unparse(passed), passed, at, line) if passed is not None else None

    def _given(self, term: Term) -> tuple[ast.expr, Spot] | None:
        return passed_for(term, self._arrays) if term.member is not None else None

    def kept(self, term: Term) -> int | None:
        """The same, by the memory of the structure alone."""
        given, crash = self._given(term), self._view.crash
        addr = self._arrays.number(*given) if given is not None else None
        if addr is None or crash is None or term.parameter is None:
            return None
        parameter = term.body.function.parameters[term.parameter]
        words = _QUALIFIERS.sub(" ", parameter).split()
        structure = self._declared.get(words[0]) if parameter.count("*") == 1 and words else None
        fields = [item for item in structure.fields if item.name == term.member] if structure is not None else []
        field = fields[0] if len(fields) == 1 else None
        if field is None or field.pointer or field.nbytes > _MOST_BYTES or _NO_INTEGERS.search(field.type):
            return None
        value = memory_word(crash, addr + field.offset, field.nbytes)
        is_negative = value is not None and value >> (_BITS * field.nbytes - 1) and not _UNSIGNED.search(field.type)
        return value - (1 << _BITS * field.nbytes) if value is not None and is_negative else value

    def _setter(self, member: str) -> tuple[str, int] | None:
        """The only function that sets a field, to its parameter at a place."""
        sets = rf"(?:->|\.)\s*{member}\s*(?P<how>{SETS})(?P<value>[^;,]*)"
        found = [*re.finditer(sets, self._plain)]
        around = function_around(self._plain, found[0].start()) if len(found) == 1 and found[0]["how"] == "=" else None
        names = [declared_name(item) for item in around.parameters] if around is not None else []
        value = found[0]["value"].strip() if found else ""
        return (around.name, names.index(value)) if around is not None and value in names else None


def _is_call(node: ast.AST, function: str) -> bool:
    return isinstance(node, ast.Call) and called_name(node) == function


def passed_for(term: Term, arrays: PassedArrays) -> tuple[ast.expr, Spot] | None:
    """The expression that the line passes for a term that is a parameter of the function that Python called."""
    if term.parameter is None:
        return None
    return arrays.argument(term.body.function.name, term.body.parameters, term.parameter)


def _argument(call: ast.AST, place: int) -> ast.expr | None:
    """Without the type of ctypes around it."""
    given = call.args if isinstance(call, ast.Call) and not call.keywords else []
    if place >= len(given) or any(isinstance(item, ast.Starred) for item in given):
        return None
    return without_ctype(given[place])
