"""Another line of the program that may free the native object which the failing line frees.

A method of the same class that does not set its attribute anew; an object that is made of the handle of another one, or
copied: each has a `__del__` that frees the same address. By the source; freed_by_owner.py has what others free.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.heap.freed_twice import sets_attribute
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_COPIES, _COPIED_BY = ("copy", "deepcopy"), ("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__")
_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)
_QUOTED = 60
_ONE = "AddressSanitizer or valgrind name both lines."


class SecondFree(msgspec.Struct, frozen=True):
    """`line`, in `within`, calls `function`, as the failing one `freeing` does.

    `owner`: the class of which `line` (`text`) makes a second object that has `attribute` of the first; `copies`: as a
    copy.
    """

    function: str
    freeing: str
    line: LineWords
    within: str
    text: str
    owner: str | None = None
    attribute: str = ""
    copies: bool = False

    @property
    def summary(self) -> str:
        """Behind the headline."""
        if self.owner is None:
            return f"{self.line}{self.within} calls {self.function}(), too"
        if self.copies:
            return f"{self.line} (`{self.text}`) may copy a {self.owner}, which frees `{self.attribute}`"
        return f"{self.line} (`{self.text}`) gives its `{self.attribute}` to a second {self.owner}"

    @property
    def advice(self) -> str:
        """The change to make."""
        if self.owner is None:
            return (
                f"Look first at whether {self.line}{self.within} gives {self.function}() the same address as "
                f"{self.freeing}, which failed: leave freeing it to one of the two. {_ONE}"
            )
        if self.copies:
            return (
                f"If `{self.text}` ({self.line}) copies a {self.owner}, both have the same `{self.attribute}`, and "
                f"{self.freeing} frees it for each: give {self.owner} a __copy__ and __deepcopy__ that make a native "
                f"object of their own, or share the one object. {_ONE}"
            )
        return (
            f"Let only one object own `{self.attribute}`: {self.line} (`{self.text}`) makes a second {self.owner} with "
            f"the same address, and {self.freeing} frees it for each. {_ONE}"
        )


def second_free(view: ProcessView) -> SecondFree | None:
    """None where the failing line calls none of the native functions on the stack, or not one other line is found."""
    frames = program_frames(view)
    frame = next(iter(frames), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.file is None or frame.line is None:
        return None
    native = {name.partition("(")[0].partition(".")[0] for name in functions(view)}
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) in native and passed_values(item)]
    if len(calls) != 1:
        return None
    files = program_files(view.process.snapshot, frames)
    found = [*_Search(view, files, frame.file, calls[0]).found()] if frame.file in files else []
    return found[0] if len(found) == 1 else None


class _Search:
    """Of what `call`, in the failing line of `file`, frees."""

    def __init__(self, view: ProcessView, files: Mapping[str, ast.Module], file: str, call: ast.Call) -> None:
        self._view, self._files, self._file = view, files, file
        self._function, self._line = called_name(call) or "", call.lineno
        self._scope = scope_of(files[file], call.lineno)
        self._owner = class_around(files[file], self._scope)
        given = variable(passed_values(call)[0]) or ""
        self._attribute = given if given.startswith("self.") and given.count(".") == 1 else ""

    def found(self) -> Iterator[SecondFree]:
        """Of second owners first: only these where there are any."""
        owners = [*self._second_owners()]
        yield from owners or self._other_calls()

    def _second_owners(self) -> Iterator[SecondFree]:
        owner = self._owner
        if owner is None or not self._attribute or self._is_asked():
            return
        copied_well = any(isinstance(item, _METHODS) and item.name in _COPIED_BY for item in owner.body)
        field = self._attribute.partition(".")[2]
        for file, tree in self._files.items():
            for node in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
                given = [part for value in passed_values(node) for part in nodes_of(value)]
                if called_name(node) == owner.name:
                    if any(isinstance(part, ast.Attribute) and part.attr == field for part in given):
                        yield self._described(file, tree, node, owner.name)
                elif called_name(node) in _COPIES and _is_of_copy(node, tree) and not copied_well:
                    yield self._described(file, tree, node, owner.name, copies=True)

    def _is_asked(self) -> bool:
        """Whether it is freed only where another attribute says so, such as `self.owns`."""
        tests = [item.test for item in nodes_of(self._scope) if isinstance(item, ast.If)]
        names = {variable(part) for test in tests for part in nodes_of(test) if isinstance(part, ast.Attribute)}
        return bool({name for name in names if name is not None and name.startswith("self.")} - {self._attribute})

    def _other_calls(self) -> Iterator[SecondFree]:
        for file, tree in self._files.items() if self._attribute and self._owner is not None else ():
            for node in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
                same = file == self._file and node.lineno == self._line
                if called_name(node) != self._function or same or not passed_values(node):
                    continue
                scope, given = scope_of(tree, node.lineno), variable(passed_values(node)[0])
                if given != self._attribute or class_around(tree, scope) is not self._owner:
                    continue  # of other objects
                if getattr(scope, "name", "") == "__del__" or any(
                    sets_attribute(item, given) for item in nodes_of(scope)
                ):
                    continue  # not before, or not again
                yield self._described(file, tree, node)

    def _described(
        self, file: str, tree: ast.Module, node: ast.Call, owner: str | None = None, *, copies: bool = False
    ) -> SecondFree:
        name = getattr(scope_of(tree, node.lineno), "name", None)
        return SecondFree(
            self._function,
            place_of(self._view, self._file, self._line),
            place_of(self._view, file, node.lineno),
            f" (in {name}())" if name is not None else "",
            shortened(ast.unparse(node), _QUOTED),
            owner,
            self._attribute,
            copies,
        )


def _is_of_copy(node: ast.Call, tree: ast.Module) -> bool:
    """`copy.copy(x)`, and `copy(x)` of `from copy import copy`: no method of an array."""
    func = node.func
    if isinstance(func, ast.Attribute):
        return isinstance(func.value, ast.Name) and func.value.id == "copy"
    return any(isinstance(item, ast.ImportFrom) and item.module == "copy" for item in nodes_of(tree))
