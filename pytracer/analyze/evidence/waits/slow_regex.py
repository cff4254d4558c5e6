"""A regular expression in whose matching the end found a process, and that repeats what repeats: `(a+)+b`."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.unbounded import Reason
from pytracer.analyze.evidence.waits.waits import before_signal
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST, _NEAR = 60, 4
_REGEX = ("sre_ucs1_match", "sre_ucs2_match", "sre_ucs4_match", "sre_search", "sre_match")
_REGEX_CALLS = frozenset({"match", "search", "fullmatch", "sub", "subn", "findall", "finditer", "split"})
_NESTED = Pattern(r"\([^()]*[+*][^()]*\)[+*{]")


def slow_regex(view: ProcessView, frame: PythonFrame) -> Reason | None:
    """A pattern that repeats what repeats, in the matching of which the end found it."""
    native = before_signal(view)[:_NEAR]
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame.line is None or not any(item.function in _REGEX for item in native):
        return None
    for call in calls_on(tree, frame.line):
        if called_name(call) not in _REGEX_CALLS:
            continue
        for pattern, line in _patterns(tree, call):
            if _NESTED.search(pattern):
                return Reason(
                    f"the regular expression of line {line} (`{shortened(pattern, _LONGEST)}`) repeats a group that "
                    f"repeats by itself, so a text that does not match can take twice as long for each further "
                    f"character, in `{shortened(ast.unparse(call), _LONGEST)}`",
                    f"Write the pattern of line {line} so that each text can match in one way only: without a `+` or "
                    "`*` inside of a group with another one, or with atomic groups and possessive quantifiers (Python "
                    "3.11). Or limit the length of what is passed to it.",
                )
    return None


def _patterns(tree: ast.Module, call: ast.Call) -> list[tuple[str, int]]:
    """The pattern of `re.match(r"...", text)`, and of `PATTERN.match(text)` with its re.compile()."""
    given = call.args[0] if call.args else None
    found = [(given.value, call.lineno)] if isinstance(given, ast.Constant) and isinstance(given.value, str) else []
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None
    for item in nodes_of(tree):
        if not isinstance(item, ast.Assign) or not isinstance(item.value, ast.Call):
            continue
        made = item.value
        named = any(ast.unparse(target) == owner for target in item.targets)
        if named and called_name(made) == "compile" and made.args and isinstance(made.args[0], ast.Constant):
            found.append((str(made.args[0].value), item.lineno))
    return found
