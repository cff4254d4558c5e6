"""Who takes from a queue of multiprocessing, by the source of a program: its main program alone, or others as well."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.apart import functions_apart
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.known_uses import is_known_by
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import all_names_of_object
from pytracer.analyze.evidence.syntax.scopes import parents_of, qualified_name
from pytracer.analyze.naming import line_in

_GETS = ("get", "get_nowait")
_QUEUES = ("Queue", "JoinableQueue", "SimpleQueue")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST, _LISTED = 40, 2


class Taker(msgspec.Struct, frozen=True):
    """A line that takes from the queue by the call `text`, and the function that it is in, which is `span` lines."""

    file: str
    line: int
    text: str
    function: str
    span: tuple[int, int] | None

    def words(self, here: str | None) -> str:
        """`games.get()` at line 9 in main; `here`: the file that is spoken of."""
        return f"`{self.text}` at {line_in(self.file, self.line, here)}{f' in {self.function}' * bool(self.function)}"


class SharedQueue(msgspec.Struct, frozen=True):
    """`name`: where it is made, `size`: `8`, `` `args.size` ``, None: without one. `takers`: of the main program."""

    name: str
    size: str | None
    takers: tuple[Taker, ...]

    def words(self, here: str | None) -> str:
        """`, and its parent alone takes from that queue (...), but not while it waits here`; `here`: in which file."""
        takes = list_words([item.words(here) for item in self.takers], _LISTED)
        return f", and its parent alone takes from that queue ({takes}), but not while it waits here"


def whole_program(files: Mapping[str, ast.Module]) -> ast.Module:
    """Its files as one, for what is asked by name; line numbers are still those of each file."""
    return ast.Module(body=[item for tree in files.values() for item in tree.body], type_ignores=[])


def shared_queue(files: Mapping[str, ast.Module], name: str) -> SharedQueue | None:
    """None where another thread or process may take from it, or the main program does not either.

    Args:
        files: All of the program.
        name: The last word of the queue's name in one of them.
    """
    program = whole_program(files)
    names = all_names_of_object(program, name)
    made = _made(program, names)
    if len(made) > 1 or not is_known_by(program, names):
        return None
    apart = functions_apart(program)
    takers: list[Taker] = []
    for file, tree in files.items():
        parents = parents_of(tree)
        for item in parents:
            if not isinstance(item, ast.Attribute) or item.attr not in _GETS or last_name(item.value) not in names:
                continue
            scope = _around(item, parents)
            if isinstance(scope, ast.Lambda) or scope in apart:
                return None
            takers.append(_taker(file, tree, item, scope))
    if not takers:
        return None
    where, size = made[0] if made else (name, None)
    return SharedQueue(where, size, tuple(takers))


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.AST | None:
    """The innermost function; None of the module."""
    around = parents.get(node)
    while around is not None and not isinstance(around, (*_FUNCTIONS, ast.Lambda)):
        around = parents.get(around)
    return around


def _taker(file: str, tree: ast.Module, item: ast.Attribute, scope: ast.AST | None) -> Taker:
    text = f"{shortened(ast.unparse(item), _LONGEST)}()"
    if not isinstance(scope, _FUNCTIONS):
        return Taker(file, item.lineno, text, "", None)
    span = (scope.lineno, scope.end_lineno or scope.lineno)
    return Taker(file, item.lineno, text, qualified_name(tree, scope), span)


def _made(program: ast.Module, names: frozenset[str]) -> list[tuple[str, str | None]]:
    """What each line binds that makes such a queue, and the number of items that it holds; several are several."""
    found = []
    for item in nodes_of(program):
        for target, value in set_by(item):
            if last_name(target) in names and isinstance(value, ast.Call) and called_name(value) in _QUEUES:
                found.append((ast.unparse(target), _size(value)))
    return found


def _size(call: ast.Call) -> str | None:
    size = argument_at(call, 0, "maxsize")
    if called_name(call) == "SimpleQueue" or size is None or (isinstance(size, ast.Constant) and not size.value):
        return None
    text = shortened(ast.unparse(size), _LONGEST)
    return text if isinstance(size, ast.Constant) else f"`{text}`"
