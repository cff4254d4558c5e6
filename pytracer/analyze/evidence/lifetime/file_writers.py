"""Lines of the program that may have shortened a mapped file: those that create or truncate a file of its name.

Read from the source alone: `open(path, "w")`, `np.memmap(mode="w+")`, `tofile()`, `torch.save()`, `truncate()`,
copies, also of whole folders, tables of Arrow, and programs that are started with the name.
A path that is a parameter is followed to calls of its function,
also to those of a process or thread that runs it. Lines are only named where a name in the program is that of the file.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from collections.abc import Iterator
from typing import TypeGuard

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.running_writers import has_its_name, was_writing
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.attribute_values import attribute_values, values_of, values_of_object
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_ends import added_by, may_be
from pytracer.analyze.evidence.syntax.path_forms import PathForms, is_settled, may_name
from pytracer.analyze.evidence.syntax.scopes import class_around, function_named, own_nodes, scope_of, withs_around
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 44
_LEAST_NAME, _LEAST_PREFIX = 3, 6  # characters; shorter names mean anything
_HOPS = 3
_RUNS, _ONCE, _MAPS, _MAKES_MISSING = -1, 1, 2, 3  # doubts
# Where the path is among the arguments, of calls that shorten a file that is there.
_PATHS = {
    "open": 0, "memmap": 0, "open_memmap": 0, "File": 0, "truncate": 0, "tofile": 0, "save": 0, "savez": 0,
    "save_file": 1, "copy": 1, "copyfile": 1, "copy2": 1,
    "write_feather": 1, "write_table": 1, "to_feather": 0, "to_parquet": 0, "copytree": 1,
}  # fmt: skip
_MODES = {"open": 1, "memmap": 2, "open_memmap": 1, "File": 1}  # only where they create
_SAVES = {"save": {"torch": 1, "np": 0, "numpy": 0}, "savez": {"np": 0, "numpy": 0}}
_COPIES = ("copy", "copyfile", "copy2", "copytree")
_STARTS = ("run", "Popen", "check_call", "check_output", "call", "system")
_STARTERS = ("subprocess", "os")
NOT_OF_PATH = (*_STARTS, "copytree")  # what they are given is not the file itself


class FileWriter(msgspec.Struct, frozen=True):
    """`at` writes; `caller`: the call that gives it the path, where that is another line. `truncates`: only that.

    `begins`: the part of a name that the file's path begins with, where its whole name is not known. `runs`: the line
    is one of the stack of a crash: the process was in that call, and it writes this file or `by_archive`.
    `by_archive`: known by the name of the archive alone.
    """

    at: PythonFrame
    text: str
    caller: PythonFrame | None
    caller_text: str | None
    begins: str | None
    file: str | None
    runs: bool = False
    by_archive: bool = False

    @property
    def words(self) -> str:
        """`` Look at line 38 (`build(path)`): it may write or truncate a file of that name, by line 21 (...). ``"""
        own = f"{self._line(self.at)} (`{shortened(self.text, _QUOTED)}`)"
        caller = f"{self._line(self.caller)} (`{shortened(self.caller_text or '', _QUOTED)}`)" if self.caller else None
        if self.begins is not None:
            given = f", which {caller} gives it" if caller is not None else ""
            return f"Look at {own}: it may write or truncate files whose name begins with {self.begins}{given}."
        if self.by_archive:
            return f"The process was in {own}, which was writing an archive of that name, probably this file."
        if self.runs and self.begins is None:
            return f"The process was in {own}, which writes a file of that name anew."
        by = f", by {own}" if caller is not None else ""
        return f"Look at {caller or own}: it may write or truncate a file of that name{by}."

    @property
    def brief(self) -> str:
        """`` line 21 (`torch.save(half, path)`) ``: what writes, itself."""
        return f"{self._line(self.at)} (`{shortened(self.text, _QUOTED)}`)"

    def _line(self, at: PythonFrame) -> str:
        return line_in(at.file, at.line, self.file)


def file_writer(view: ProcessView, path: str, stack: list[PythonFrame] | None = None) -> FileWriter | None:
    """The likeliest: not one that runs only where there is no such file, nor what ran once before the crashed line.

    `stack`: the program's frames whose files are read; those of the crash otherwise.
    """
    frames = program_frames(view) if stack is None else stack
    trees = program_files(view.process.snapshot, frames)
    found = sorted(_candidates(view, trees, path, frames), key=lambda item: item[0])
    return found[0][1] if found else None


def _candidates(
    view: ProcessView, trees: dict[str, ast.Module], path: str, frames: list[PythonFrame]
) -> Iterator[tuple[tuple[int, int], FileWriter]]:
    first = frames[0].file if frames else next(iter(trees), None)
    forms = PathForms(trees)
    for file, tree in trees.items():
        for call, given in writers(tree):
            # copytree() is given the folder that the file lies in.
            meant = os.path.dirname(path) if called_name(call) == "copytree" else path
            if called_name(call) not in _STARTS and not all(may_be(tree, call, item, meant) for item in given):
                continue
            starts = called_name(call) in _STARTS
            made = [] if starts else [forms.of(tree, item) for item in given]
            added = added_by(call)
            if any(not any(may_name(form, meant, added) for form in item) for item in made):
                continue
            within = not starts and was_writing(view, tree, file, call, path)
            named = [*_named(trees, (file, tree), call, given, meant)]
            runs = within and any(_is_whole(forms, trees, item, path, added) for item in made)
            by_archive = within and not runs and has_its_name(view, call, path)
            runs = runs or by_archive
            for caller, where in named or ([(None, None)] if by_archive else []):
                at = PythonFrame(function=None, file=file, line=call.lineno)
                outer = (
                    PythonFrame(function=None, file=caller[0], line=caller[1].lineno) if caller is not None else None
                )
                writer = FileWriter(
                    at,
                    line_text(view.process.snapshot, at) or "",
                    outer,
                    line_text(view.process.snapshot, outer) if outer is not None else None,
                    where,
                    first,
                    runs,
                    by_archive,
                )
                place, node = caller if caller is not None else (file, call)
                yield (_RUNS if within else _doubt(trees[place], node), node.lineno), writer


def _is_whole(forms: PathForms, trees: dict[str, ast.Module], made: set[str], path: str, added: str) -> bool:
    """Whether what a call is given can only be the file: its whole path, or that of each line which may have mapped it.

    `made`: the forms of its path.
    """
    form = next(iter(made)) if len(made) == 1 else None
    if form is None or not is_settled(form):
        return False
    if form.startswith("/"):
        return path in (form, form + added)
    mapped = [
        forms.of(tree, call.args[0]) for tree in trees.values() for call in nodes_of(tree) if _maps_argument(call)
    ]
    alike = {item for found in mapped for item in found if may_name(item, path)}
    return alike <= {form, form + added} and bool(alike)


def _maps_argument(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and bool(node.args) and _maps(node)


def _doubt(tree: ast.Module, node: ast.Call) -> int:
    """How unlikely it met a file that was mapped: least of a call that may run often, more of one that ran once.

    Still more of one that maps the file itself, and most of one that makes a missing file.
    """
    around = [item for item in nodes_of(tree) if hasattr(item, "body") and _spans(item, node.lineno)]
    if any(isinstance(item, ast.If) and "exists" in ast.unparse(item.test) for item in around):
        return _MAKES_MISSING
    scope, looped = scope_of(tree, node.lineno), any(isinstance(item, LOOPS) for item in around)
    mapped = [item.lineno for item in own_nodes(scope) if isinstance(item, ast.Call) and _leads_to_map(tree, item)]
    if any(line > node.lineno for line in mapped) and not looped:
        return _MAKES_MISSING  # it makes the file that is mapped then
    if not looped and _only_before_map(tree, getattr(scope, "name", None)):
        return _MAKES_MISSING
    if _leads_to_map(tree, node) and not looped:
        return _MAPS
    return 0 if looped or any(isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) for item in around) else _ONCE


def _only_before_map(tree: ast.Module, function: str | None) -> bool:
    """Whether all calls of a function of the file come once, and before a map is made in the same scope."""
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == function]
    if function is None or not calls:
        return False
    for call in calls:
        looped = any(isinstance(item, LOOPS) and _spans(item, call.lineno) for item in nodes_of(tree))
        own = [item for item in own_nodes(scope_of(tree, call.lineno)) if isinstance(item, ast.Call)]
        if looped or not any(item.lineno > call.lineno and _leads_to_map(tree, item) for item in own):
            return False
    return True


def _leads_to_map(tree: ast.Module, call: ast.Call) -> bool:
    """Whether it maps a file, or calls a function of the same file that does."""
    function = function_named(tree, called_name(call) or "")
    inner = (node for node in (own_nodes(function) if function is not None else ()) if isinstance(node, ast.Call))
    return _maps(call) or any(_maps(node) for node in inner)


def _maps(call: ast.Call) -> bool:
    name = called_name(call)
    given = {item.arg for item in call.keywords}
    if name in ("memmap", "from_file", "memory_map", "load_file", "safe_open", "from_pretrained", "load_from_disk"):
        return True
    return "memory_map" in given or (name == "load" and bool(given & {"mmap_mode", "mmap"}))


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 1 << 30) <= line <= (getattr(node, "end_lineno", 0) or 0)


def writers(tree: ast.Module) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
    """Calls that create or truncate, each with what may be the path."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call):
            continue
        name, func = called_name(node) or "", node.func
        owner = ast.unparse(func.value) if isinstance(func, ast.Attribute) else None
        if name in _STARTS and owner in _STARTERS:
            yield node, [*node.args[:1]]
        elif name in ("write_bytes", "write_text") and isinstance(func, ast.Attribute):
            yield node, [func.value]
        elif name == "open" and isinstance(func, ast.Attribute) and "w" in _mode(node, 0):
            yield node, [func.value]  # `Path(name).open("wb")`
        elif name == "truncate" and owner != "os" and (path := _opened(tree, node)) is not None:
            yield node, [path]
        elif name in _PATHS:
            place = _PATHS[name]
            if name in _SAVES:
                if owner not in _SAVES[name]:
                    continue
                place = _SAVES[name][owner or ""]
            if name == "copytree" and not _over(node):
                continue  # it raises where the folder is there
            if (name in _COPIES and owner != "shutil") or (name == "truncate" and owner != "os"):
                continue
            if name in _MODES and "w" not in _mode(node, _MODES[name]):
                continue
            if len(node.args) > place:
                yield node, [node.args[place]]


def _opened(tree: ast.Module, call: ast.Call) -> ast.expr | None:
    """`path` of `with open(path, "r+b") as f: f.truncate(n)`."""
    file = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    for item in (part for around in withs_around(tree, call.lineno) for part in around.items):
        opener, name = item.context_expr, item.optional_vars
        if file is None or name is None or variable(name) != file or not isinstance(opener, ast.Call):
            continue
        if called_name(opener) == "open" and isinstance(opener.func, ast.Name) and opener.args:
            return opener.args[0]
    return None


def _over(call: ast.Call) -> bool:
    given = keyword_value(call, "dirs_exist_ok")
    return given is not None and not (isinstance(given, ast.Constant) and not given.value)


def creates(call: ast.Call) -> bool:
    """Whether it makes a file anew that is there: by its mode, or as each call of that name does."""
    name = called_name(call) or ""
    return "w" in _mode(call, _MODES[name]) if name in _MODES else name in ("tofile", *_SAVES)


def _mode(call: ast.Call, place: int) -> str:
    given = keyword_value(call, "mode")
    if given is None and len(call.args) > place:
        given = call.args[place]
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""


_Caller = tuple[str, ast.Call]


def _named(
    trees: dict[str, ast.Module], place: tuple[str, ast.Module], call: ast.Call, given: list[ast.expr], path: str
) -> Iterator[tuple[_Caller | None, str | None]]:
    """The callers whose arguments name the file, or none for the line itself; with what the path begins with."""
    tree = place[1]
    scope = scope_of(tree, call.lineno)
    texts, names = texts_of(tree, call.lineno, given)
    hit = names_file(texts, path)
    if hit is not None:
        yield None, hit[1]
        return
    name = getattr(scope, "name", None)
    if _made_with(trees, class_around(tree, scope), names, path):
        yield None, None
        return
    if name is None or not names & _parameters(scope):
        return
    for other, outer in trees.items():
        for node in nodes_of(outer):
            if isinstance(node, ast.Call) and (called_name(node) == name or _hands_on(node, name)):
                texts, _ = texts_of(outer, node.lineno, passed_values(node))
                hit = names_file(texts, path)
                if hit is not None:
                    yield (other, node), hit[1]


def _made_with(trees: dict[str, ast.Module], owner: ast.ClassDef | None, names: set[str], path: str) -> bool:
    """Whether the path is an attribute, and an object of that class is made with the file's whole name."""
    if owner is None or not any(name.startswith("self.") for name in names):
        return False
    init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None or not names & _parameters(init):
        return False
    made = [
        names_file(texts_of(tree, node.lineno, passed_values(node))[0], path)
        for tree in trees.values()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == owner.name
    ]
    return any(hit is not None and hit[1] is None for hit in made)


def _parameters(scope: ast.AST) -> set[str]:
    return {item.arg for item in getattr(getattr(scope, "args", None), "args", [])} - {"self"}


def _hands_on(call: ast.Call, function: str) -> bool:
    """`Process(target=sweep, args=(...))`, `pool.submit(sweep, ...)`."""
    given = [*call.args[:1], *(item.value for item in call.keywords if item.arg in ("target", "fn"))]
    return any(isinstance(item, ast.Name) and item.id == function for item in given)


def texts_of(tree: ast.Module, line: int, given: list[ast.expr]) -> tuple[set[str], set[str]]:
    """Constants in the expressions and in what their variables were made of; and the names among them."""
    scope = scope_of(tree, line)
    owner = class_around(tree, scope)
    texts: set[str] = set()
    names: set[str] = set()
    waiting = [(node, 0) for node in given]
    while waiting:
        node, hops = waiting.pop()
        for part in nodes_of(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                texts.add(part.value)
            if isinstance(part, ast.JoinedStr):
                texts.add(_pattern(part))
            if isinstance(part, ast.Call) and hops < _HOPS:
                waiting += [(value, hops + 1) for value in _returned(tree, part)]
            if isinstance(part, ast.Attribute) and variable(part) is None and hops < _HOPS:
                waiting += [(value, hops + 1) for value in values_of_object(tree, scope, owner, part)]
            name = variable(part)
            if name is None or name in names or hops == _HOPS:
                continue
            names.add(name)
            if name.startswith("self.") and owner is not None:
                waiting += [(value, hops + 1) for value in attribute_values(tree, owner, name.removeprefix("self."))]
                continue
            waiting += [(value, hops + 1) for value in values_of(scope, name)]
            if scope is not tree and not name.startswith("self."):
                waiting += [(value, hops + 1) for value in values_of(tree, name)]
    return texts, names


def _pattern(node: ast.JoinedStr) -> str:
    """`*/shard-*.bin` of `f"{root}/shard-{i:02d}.bin"`."""
    return "".join(str(item.value) if isinstance(item, ast.Constant) else "*" for item in node.values)


def _returned(tree: ast.Module, call: ast.Call) -> Iterator[ast.expr]:
    """What the program's own function of that name returns, where there is one."""
    found = function_named(tree, called_name(call) or "")
    for item in own_nodes(found) if found is not None else ():
        if isinstance(item, ast.Return) and item.value is not None:
            yield item.value


def names_file(texts: set[str], path: str) -> tuple[str, str | None] | None:
    """Whether one of them is the file's name, with or without its suffix or folder, or what its path begins with."""
    base = os.path.basename(path)
    whole = {base, base.partition(".")[0], os.path.splitext(base)[0], path}
    for text in texts:
        if len(text) >= _LEAST_NAME and (text in whole or os.path.basename(text) == base):
            return text, None
        if "*" in text and len(text.replace("*", "")) >= _LEAST_PREFIX and fnmatch.fnmatchcase(path, f"*{text}"):
            return text, None
    begins = [text for text in texts if len(text) >= _LEAST_PREFIX and path.startswith(text) and os.sep in text[1:]]
    return (max(begins, key=len), max(begins, key=len)) if begins else None
