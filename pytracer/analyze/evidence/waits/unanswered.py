"""A command that a process sends through a pipe to a child, whose loop has no branch for it: nobody answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import elements
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, qualified_name, scope_of, spans
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_LONGEST, _LISTED = 50, 4


class Unanswered(msgspec.Struct, frozen=True):
    """`sent`: the line that sends `command`. `known`: the commands for which `function` of the child has a branch."""

    command: str
    sent: LineWords
    function: str
    known: tuple[str, ...]
    places: tuple[Place, ...]

    @property
    def words(self) -> str:
        """After the children's wait."""
        known = list_words([f"'{item}'" for item in self.known[:_LISTED]])
        more = " and more" if len(self.known) > _LISTED else ""
        return (
            f"{self.sent} sends '{self.command}', for which {self.function} has no branch (it has {known}{more}), "
            "so that nobody answers"
        )

    @property
    def advice(self) -> str:
        """On either side."""
        return (
            f"Give {self.function} a branch for '{self.command}' that sends an answer, or do not wait for one. Let an "
            "`else` there raise, or send back, what it does not know: a wrong name is an error then, and no wait."
        )


def unanswered(view: ProcessView, wait: ProcessWait, child: ProcessView, asks: ProcessWait) -> Unanswered | None:
    """None where the child may answer: it has the command, an `else`, or takes it otherwise."""
    tree, other = syntax_tree(view.process.snapshot, wait.at), syntax_tree(child.process.snapshot, asks.at)
    if tree is None or other is None or wait.at is None or asks.at is None:
        return None
    if wait.at.line is None or asks.at.line is None:
        return None
    sent = _sent(scope_of(tree, wait.at.line), wait.at.line)
    scope = scope_of(other, asks.at.line)
    names = {name for item in own_nodes(scope) for name in _received(item, asks.at.line)}
    if sent is None or len(names) != 1:
        return None
    command, line = sent
    known = _branches(scope, names.pop())
    if known is None or not known or command in known:
        return None
    here = line_in(wait.at.file, line, wait.at.file)
    places = ((wait.at.file, line), (asks.at.file, asks.at.line))
    return Unanswered(shortened(command, _LONGEST), here, qualified_name(other, scope), tuple(known), places)


def _sent(scope: Scope, line: int) -> tuple[str, int] | None:
    """The last one above the line that waits: `remote.send(("seed", seed))`, `remote.send("reset")`."""
    found = []
    for item in own_nodes(scope):
        if not isinstance(item, ast.Call) or called_name(item) != "send" or item.lineno > line or len(item.args) != 1:
            continue
        first = elements(item.args[0])[:1] or [item.args[0]]
        value = first[0].value if isinstance(first[0], ast.Constant) else None
        found.append((value if isinstance(value, str) else None, item.lineno))
    command, at = max(found, key=lambda entry: entry[1], default=(None, 0))
    return (command, at) if command is not None else None


def _received(item: ast.AST, line: int) -> Iterator[str]:
    """`cmd` of `cmd, data = remote.recv()`, and of `cmd = remote.recv()`."""
    if not isinstance(item, ast.Assign) or not spans(item, line):
        return
    if isinstance(item.value, ast.Call) and called_name(item.value) == "recv" and len(item.targets) == 1:
        first = elements(item.targets[0])[:1] or [item.targets[0]]
        if isinstance(first[0], ast.Name):
            yield first[0].id


def _branches(scope: Scope, name: str) -> list[str] | None:
    """The commands that the name is compared with; None where something else is done with it, or for all others."""
    nodes = list(own_nodes(scope))
    if any(isinstance(target, ast.Name) and target.id == name and not _is_received(item)
           for item in nodes for target, _ in set_by(item)):  # fmt: skip
        return None
    found: list[str] = []
    compared = 0
    for item in nodes:
        test = item.test if isinstance(item, ast.If) else None
        if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or test.left.id != name:
            continue
        if len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.In)) or not isinstance(item, ast.If):
            return None
        given = elements(test.comparators[0]) or [test.comparators[0]]
        values = [part.value for part in given if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        last = item.orelse
        if len(values) != len(given) or (last and not (len(last) == 1 and isinstance(last[0], ast.If))):
            return None
        found += values
        compared += 1
    if _answers_all(scope, name):
        return None
    read = sum(isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Load) for item in nodes)
    return found if read == compared else None


def _answers_all(scope: Scope, name: str) -> bool:
    """Whether a send() lies outside of the branches: an answer to whatever came."""
    nodes = own_nodes(scope)
    branches = [
        item
        for item in nodes
        if isinstance(item, ast.If)
        and any(isinstance(part, ast.Name) and part.id == name for part in nodes_of(item.test))
    ]
    inside = {id(part) for item in branches for part in nodes_of(item)}
    return any(isinstance(item, ast.Call) and called_name(item) == "send" and id(item) not in inside for item in nodes)


def _is_received(item: ast.AST) -> bool:
    """Whether it is the line that receives."""
    return isinstance(item, ast.Assign) and any(
        isinstance(part, ast.Call) and called_name(part) == "recv" for part in nodes_of(item.value)
    )
