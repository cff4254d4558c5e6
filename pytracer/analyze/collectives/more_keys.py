"""A loop over a dict of each rank's own keys: one rank calls for a further key, the other one has gone through its own.

`for meter in self.meters.values(): meter.synchronize()`: the last call that both made is of that loop, and begins a
round of it on the one rank, while the other one is behind the loop, perhaps in the next epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import capital
from pytracer.analyze.collectives.call_sites import Site, calls_of_group, site_of
from pytracer.analyze.collectives.deciding_tests import SAME
from pytracer.analyze.collectives.filled_keys import FilledKeys, filled_keys
from pytracer.analyze.collectives.left_out_calls import LeftOut
from pytracer.analyze.collectives.ways import Side, in_step, quoted
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

_DECIDES = (ast.If, ast.IfExp, ast.Try, ast.Break, ast.Continue, ast.Return, ast.While)
_MAKES_KEYS = ("setdefault",)


class _Round(msgspec.Struct, frozen=True):
    """The loop, its frame with the place of that in the way, and the frames below, each in a function of its own."""

    loop: ast.For
    tree: ast.Module
    frame: PythonFrame
    position: int
    inner: Sequence[PythonFrame]

    def has(self, site: Site | None) -> bool:
        """Whether a call is of the loop: by its line, or by the function that the loop alone calls."""
        if site is None:
            return False
        if site[0] == self.frame.file and spans(self.loop, site[2]):
            return True
        return any((item.file, (item.function or "").rpartition(".")[2]) == _named(site) for item in self.inner)


def more_keys(one: Side, other: Side, *, ended: bool = False) -> LeftOut | None:
    """What to say of it.

    Args:
        one: The rank that is in the loop.
        other: The one behind it.
        ended: Whether that has no further call: its `call` is then that of the first.
    """
    found = _round(one)
    if found is None or (not ended and found.has(site_of(other.call))) or not in_step(one, other):
        return None
    if not _begins_round(found, one):
        return None
    depth = len(one.way) - 1 - found.position
    keys, snapshot = filled_keys(one, found.loop, depth), one.view.process.snapshot
    text = quoted(snapshot, found.frame, found.loop.lineno)
    if keys is None or text is None:
        return None
    here = one.way[-1].file
    where = line_in(found.frame.file, found.loop.lineno, here)
    set_at = keys.words or _key_words(program_files(snapshot, one.way[::-1]), found, keys, here)
    said = f"`{keys.name}`, which {where} ({text}) goes through, has fewer keys on {other.name}"
    why = f" {capital(set_at)}." if set_at is not None else ""
    return LeftOut(
        f"{said}{f': {set_at}' if set_at is not None else ''}",
        f"Go through the same keys in the same order on all ranks in {where}: a fixed list of names, or the sorted "
        f"union of the keys of all ranks (all_gather_object() of `[*{keys.name}]` before the loop), with zeros for "
        f"what a rank does not have.{why}",
    )


def _round(one: Side) -> _Round | None:
    """The innermost loop on the way, where nothing but its dict decides how often the call is made."""
    snapshot = one.view.process.snapshot
    files: Mapping[str, ast.Module] = {}
    for position in range(len(one.way) - 1, -1, -1):
        frame = one.way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            return None
        loop = next(iter(loops_around(tree, frame.line)[::-1]), None)
        if isinstance(loop, ast.For):
            free = not any(isinstance(item, _DECIDES) for item in own_nodes(loop))
            return _Round(loop, tree, frame, position, one.way[position + 1 :]) if free else None
        tests = [item for item, _ in deciding_ifs(tree, frame.line) if not SAME.search(ast.unparse(item.test))]
        files = files or program_files(snapshot, one.way[::-1])
        if loop is not None or tests or not _is_called_once(files, (frame.function or "").rpartition(".")[2]):
            return None
    return None


def _is_called_once(files: Mapping[str, ast.Module], name: str) -> bool:
    calls = (item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return sum(called_name(item) == name for item in calls) == 1


def _begins_round(found: _Round, one: Side) -> bool:
    """Whether the calls before are of the loop, and the first of these was from the line of the open one."""
    number = one.call.sequence_nr
    calls = {item.sequence_nr: site_of(item) for item in calls_of_group(one.view, one.call.group)}
    first: Site | None = None
    while found.has(calls.get(number - 1)):
        number -= 1
        first = calls[number]
    return first is not None and first == site_of(one.call) and _is_of_one_pass(found, one, calls.get(number - 1))


def _is_of_one_pass(found: _Round, one: Side, before: Site | None) -> bool:
    """Whether the calls of the loop are all of its last pass: the call before them is of each round around it.

    Else a rank that has more batches is at the first key again, where the other one has none left.
    """
    snapshot = one.view.process.snapshot
    for frame in one.way[found.position :: -1]:
        tree = found.tree if frame is found.frame else syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            return False
        loops = loops_around(tree, found.loop.lineno if frame is found.frame else frame.line)
        if not loops:
            continue
        if before is None:
            return False
        if before[0] == frame.file and spans(loops[-1], before[2]):
            return not any(spans(loops[-1], item.lineno) for item, _ in deciding_ifs(tree, before[2]))
        calls = (item for item in nodes_of(loops[-1]) if isinstance(item, ast.Call))
        return any(called_name(item) == _named(before)[1] for item in calls)
    return True


def _named(site: Site) -> tuple[str, str]:
    return site[0], site[1].rpartition(".")[2]


# ---- where keys come from


def _key_words(files: Mapping[str, ast.Module], found: _Round, keys: FilledKeys, here: str | None) -> str | None:
    """The one line that makes keys which are computed; of those of `**options` the one that passes such."""
    made = [(file, *item) for file, tree in files.items() for item in _computed(tree, keys.name, found.loop)]
    made = [item for item in made if item[0] == found.frame.file] if keys.name.startswith("self.") else made
    if len(made) != 1:
        return None
    file, node, scope = made[0]
    passed = [*_passed(files, scope)] if _is_of_options(node, scope) else []
    if len(passed) == 1:
        file, node = passed[0]
    return f"{line_in(file, node.lineno, here)} (`{short(source(node))}`) makes a key of what each rank has"


def _computed(tree: ast.Module, name: str, loop: ast.For) -> Iterator[tuple[ast.expr, ast.AST]]:
    """`self.meters[name]` and `self.meters.setdefault(name, ...)` outside of the loop, with their functions."""
    for item in nodes_of(tree):
        is_item = isinstance(item, ast.Subscript) and variable(item.value) == name
        key = item.slice if isinstance(item, ast.Subscript) else None
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.args:
            is_item = item.func.attr in _MAKES_KEYS and variable(item.func.value) == name
            key = item.args[0]
        if not is_item or not isinstance(item, ast.expr) or isinstance(key, ast.Constant):
            continue
        if not spans(loop, item.lineno):
            yield item, scope_of(tree, item.lineno)


def _is_of_options(node: ast.expr, scope: ast.AST) -> bool:
    """Whether the key is one of the function's `**options`."""
    options = scope.args.kwarg if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    key = node.slice if isinstance(node, ast.Subscript) else node.args[0] if isinstance(node, ast.Call) else None
    if options is None or not isinstance(key, ast.Name):
        return False
    return any(
        isinstance(item, ast.For) and key.id in bare_names(item.target) and options.arg in bare_names(item.iter)
        for item in own_nodes(scope)
    )


def _passed(files: Mapping[str, ast.Module], scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Calls of a function with `**{f"acc_{source}": x}`: keys that are computed."""
    name = getattr(scope, "name", None)
    for file, tree in files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == name):
            given = (item.value for item in call.keywords if item.arg is None)
            if any(not isinstance(item, ast.Dict) or not all(map(_is_plain, item.keys)) for item in given):
                yield file, call


def _is_plain(key: ast.AST | None) -> bool:
    return isinstance(key, ast.Constant)
