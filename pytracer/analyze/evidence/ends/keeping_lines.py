"""The line of the program that keeps what each round makes: it puts a result into a list or dict that only grows.

Known from the source alone, and from the line that allocated what is held: what that line binds, or what its function
returns, is stored as it is (or a view of it), and nothing empties what it is stored in. A loss is another matter: after
backward() its graph holds nothing, so it counts only where the loop calls none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytracer._text import capital, list_words, shortened
from pytracer.analyze.evidence.ends.graph_levels import Graph
from pytracer.analyze.evidence.ends.growing_containers import only_grows, stored
from pytracer.analyze.evidence.ends.kept_slices import only_slice
from pytracer.analyze.evidence.ends.summed_graphs import GraphSums, SummedGraph, retains
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS, loops_around
from pytracer.analyze.evidence.syntax.names import elements, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of, spans
from pytracer.analyze.naming import LineWords, line_in, short_file
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_QUOTED = 70
_MOST = 2
_SAME = ("detach", "cpu", "contiguous", "numpy", "view", "reshape", "squeeze", "unsqueeze", "flatten", "to", "data")
_WITHOUT_GRAPH = ("detach", "numpy", "data")
_NO_GRAPH = ("no_grad", "inference_mode")
_FORWARD = ("forward", "__call__")
_REDUCES = ("mean", "sum", "norm", "max", "min", "prod")
# Functions of tensors, and methods, that give one with a graph; indices and comparisons have none.
_WITH_GRAPH = frozenset(
    {"mean", "sum", "norm", "abs", "pow", "square", "sqrt", "exp", "log", "log10", "cpu", "to", "float", "double"}
    | {"mse_loss", "l1_loss", "smooth_l1_loss", "nll_loss", "kl_div", "cross_entropy", "binary_cross_entropy"}
    | {"binary_cross_entropy_with_logits", "softmax", "log_softmax", "sigmoid", "tanh", "clamp", "squeeze", "criterion"}
)
_LOSSES = ("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "criterion")
_INIT = "__init__"
_UNDER_NO_GRAD = "or run the loop under torch.no_grad() where nothing calls backward()"
_FREES = ("backward", "grad", "manual_backward")


class KeepingLine(msgspec.Struct, frozen=True):
    """`subject`: for the headline, without the line that made it. `advice`: what to write there."""

    subject: str
    advice: str
    endless: bool = False  # no limit would be enough
    container: str | None = None  # what it is kept in


class KeptThere(msgspec.Struct, frozen=True):
    """The line that puts each of what a line makes into `container`: its place, its text, and what it puts there."""

    place: LineWords
    text: str
    value: str
    container: str


class Round(msgspec.Struct, frozen=True):
    """What a round makes: the names that hold it, in a part of a function that runs again and again."""

    file: str
    tree: ast.Module
    scope: Scope
    region: ast.AST
    names: frozenset[str]
    line: int | None  # of the allocation, where it is in this very function


class _Kept(msgspec.Struct, frozen=True):
    made: Round
    node: ast.stmt
    container: ast.expr
    names: tuple[str, ...]  # as they are
    graphs: tuple[str, ...]  # numbers with a graph beside them


def keeping_line(snapshot: Snapshot, frame: PythonFrame) -> KeepingLine | None:
    """The one that keeps what the line of `frame` allocated; None where the source does not show a single one."""
    files = program_files(snapshot, [frame])
    tree = files.get(frame.file or "")
    if tree is None or frame.file is None or frame.line is None:
        return None
    found = [item for made in rounds_of(files, frame.file, tree, frame.line) for item in _stores(made)]
    direct = [item for item in found if item.names]
    passing = functions_with_backward(files.values())
    of_graph = [item for item in found if not item.names and not _frees_graphs(item.made.region, passing)]
    place = f"line {frame.line}"
    if 0 < len(direct) <= _MOST:
        return _of_values(direct[0], frame.file, place)
    if not direct and len(of_graph) == 1:
        return _of_graphs(of_graph[0], frame.file, place)
    return _of_sums(GraphSums(files).of_line(frame.file, frame.line), frame.file, place) if not direct else None


def kept_there(snapshot: Snapshot, frame: PythonFrame) -> KeptThere | None:
    """Where the program keeps what the line of `frame` makes, as keeping_line finds it; whatever that is."""
    files = program_files(snapshot, [frame])
    tree = files.get(frame.file or "")
    if tree is None or frame.file is None or frame.line is None:
        return None
    direct = [item for made in rounds_of(files, frame.file, tree, frame.line) for item in _stores(made) if item.names]
    if not 0 < len(direct) <= _MOST:
        return None
    first = direct[0]
    return KeptThere(_place(first, frame.file), _text(first), first.names[0], ast.unparse(first.container))


def rounds_of(files: dict[str, ast.Module], file: str, tree: ast.Module, line: int) -> Iterator[Round]:
    """Where what a line makes is at hand: in its own loop, or in one that calls its function."""
    scope, loops = scope_of(tree, line), loops_around(tree, line)
    statements = [item for item in own_nodes(scope) if isinstance(item, ast.stmt) and spans(item, line)]
    statement = max(statements, key=lambda item: item.lineno, default=None)
    if loops or (not isinstance(scope, (ast.Module, ast.Lambda)) and scope.name not in _FORWARD):
        yield Round(file, tree, scope, loops[0] if loops else scope, _names(statement), line)
    if loops or isinstance(scope, (ast.Module, ast.Lambda)):
        return
    if not any(isinstance(item, ast.Return) and item.value is not None for item in own_nodes(scope)):
        return
    for other, there in files.items():
        for call, target in _results(there):
            around = loops_around(there, call.lineno)
            if around and _may_be(call, scope.name, there):
                yield Round(other, there, scope_of(there, call.lineno), around[0], _names(target), None)


def _results(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.stmt]]:
    """`out = model(x)`, `out = model(x).logits`."""
    for item in nodes_of(tree):
        value = item.value if isinstance(item, ast.Assign) else None
        while isinstance(value, (ast.Attribute, ast.Subscript)):
            value = value.value
        if isinstance(item, ast.Assign) and isinstance(value, ast.Call):
            yield value, item


def _may_be(call: ast.Call, name: str, tree: ast.Module) -> bool:
    """Whether it calls the function: by its name; forward() by what the file binds to a variable."""
    if name not in _FORWARD:
        return called_name(call) == name
    named = variable(call.func)
    return named is not None and any(
        isinstance(item, ast.Assign)
        and any(variable(part) == named for target in item.targets for part in elements(target))
        for item in nodes_of(tree)
    )


def _names(statement: ast.stmt | None) -> frozenset[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return frozenset(part.id for item in targets for part in nodes_of(item) if isinstance(part, ast.Name))


def _stores(made: Round) -> Iterator[_Kept]:
    numbers = _numbers(made.region)
    derived = _derived(made) | numbers
    for node in nodes_of(made.region):
        found = stored(node) if isinstance(node, ast.stmt) else None
        if found is None or not isinstance(node, ast.stmt) or not only_grows(made.tree, made.scope, found[0], node):
            continue
        container, value = found
        held = [*held_by(value)]
        here = made.line is not None and spans(node, made.line) and not _is_number(value)
        names = tuple(name for name, _ in held if name in made.names and name not in numbers)
        if all(_is_loss(made, name) for name in names):
            names = ()
        graphs = tuple(name for name, graph in held if graph and name in derived and name not in names)
        if here and not names:
            text = shortened(ast.unparse(value), _QUOTED)
            if not isinstance(node, ast.AugAssign):
                names = (text,)
            elif isinstance(value, ast.Call) and called_name(value) not in _WITHOUT_GRAPH:
                graphs = (text,)
        if isinstance(node, ast.AugAssign) and not names and not graphs and _has_graph(value, derived - numbers):
            graphs = (shortened(ast.unparse(value), _QUOTED),)
        if names or (graphs and not _without_graph(made, node)):
            yield _Kept(made, node, container, names, graphs)


def _is_loss(made: Round, name: str) -> bool:
    """A number, which itself holds nothing: by its name, or by what made it."""
    values = [item.value for item in nodes_of(made.region) if isinstance(item, ast.Assign) and name in _names(item)]
    calls = [item for item in values if isinstance(item, ast.Call)]
    return "loss" in name.lower() or any(
        ((called_name(item) or "") in _REDUCES and not (isinstance(item.func, ast.Attribute) and item.args))
        or "loss" in (called_name(item) or "").lower()
        or (called_name(item) or "") in _LOSSES
        for item in calls
    )


def _derived(made: Round) -> frozenset[str]:
    """Also what is computed from it, as tensors."""
    found = set(made.names)
    for item in [*nodes_of(made.region)] * 2:
        if isinstance(item, ast.Assign) and not _is_number(item.value):
            used = {part.id for part in nodes_of(item.value) if isinstance(part, ast.Name)}
            found |= _names(item) if used & found else set()
    return frozenset(found)


def held_by(value: ast.expr) -> Iterator[tuple[str, bool]]:
    """The variables whose memory a value keeps, each with whether its graph, too; what is computed from them is new."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        for item in value.elts:
            yield from held_by(item)
    elif isinstance(value, ast.Dict):
        for item in value.values:
            yield from held_by(item)
    elif isinstance(value, ast.Name):
        yield value.id, True
    elif isinstance(value, (ast.Attribute, ast.Subscript)):
        drops = isinstance(value, ast.Attribute) and value.attr in _WITHOUT_GRAPH
        if not (isinstance(value, ast.Attribute) and value.attr in ("shape", "dtype", "device", "ndim", "grad")):
            yield from ((name, graph and not drops) for name, graph in held_by(value.value))
    elif isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            drops = value.func.attr in _WITHOUT_GRAPH
            yield from ((name, graph and not drops) for name, graph in held_by(value.func.value))
        elif isinstance(value.func, ast.Name) and value.func.id == "dict":
            for part in value.keywords:
                yield from held_by(part.value)


def _has_graph(value: ast.expr, derived: frozenset[str]) -> bool:
    """Whether a sum, a product or a mean of what the round makes is a tensor with a graph of it."""
    if isinstance(value, ast.Name):
        return value.id in derived
    if isinstance(value, ast.BinOp):
        return _has_graph(value.left, derived) or _has_graph(value.right, derived)
    if isinstance(value, ast.UnaryOp):
        return not isinstance(value.op, ast.Not) and _has_graph(value.operand, derived)
    if isinstance(value, ast.Call):
        name, owner = called_name(value) or "", value.func.value if isinstance(value.func, ast.Attribute) else None
        if name not in _WITH_GRAPH:
            return False
        return any(_has_graph(item, derived) for item in (*value.args, *([owner] if owner is not None else [])))
    return False


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and called_name(value) in ("item", "float", "int", "len", "tolist", "str")


def _numbers(region: ast.AST) -> frozenset[str]:
    """What backward() is called on, and the terms of it: numbers, whose graph it frees."""
    found: set[str] = set()
    for item in nodes_of(region):
        own = isinstance(item, ast.Call) and called_name(item) == "backward" and not retains(item)
        if isinstance(item, ast.Call) and own and isinstance(item.func, ast.Attribute):
            roots = [item.func.value, *item.args]
            found |= {part.id for root in roots for part in nodes_of(root) if isinstance(part, ast.Name)}
    for item in [*nodes_of(region)] * 2:  # also the terms of terms
        if isinstance(item, ast.Assign) and _names(item) & found and isinstance(item.value, (ast.BinOp, ast.Name)):
            found |= {part.id for part in nodes_of(item.value) if isinstance(part, ast.Name)}
    return frozenset(found)


def functions_with_backward(trees: Iterable[ast.Module]) -> frozenset[str]:
    """The functions of the program that call backward(); the module itself is `<module>`."""
    return frozenset(
        getattr(scope_of(tree, item.lineno), "name", "<module>")
        for tree in trees
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _FREES and not retains(item)
    )


def _frees_graphs(region: ast.AST, passing: frozenset[str]) -> bool:
    """Whether a loop calls backward(), or a function that does; of a function without a loop its caller may do so."""
    if not isinstance(region, LOOPS):
        return bool(passing)
    calls = {called_name(item) for item in nodes_of(region) if isinstance(item, ast.Call) and not retains(item)}
    return bool(calls & {*_FREES, *passing})


def _without_graph(made: Round, node: ast.stmt) -> bool:
    around = [item for item in nodes_of(made.tree) if isinstance(item, ast.With) and spans(item, node.lineno)]
    heads = [part for item in around for part in item.items] + list(getattr(made.scope, "decorator_list", []))
    return any(word in ast.unparse(item) for item in heads for word in _NO_GRAPH)


def _place(kept: _Kept, file: str) -> LineWords:
    line = kept.node.lineno
    return line_in(kept.made.file, line, file)


def _text(kept: _Kept) -> str:
    return shortened(" ".join(ast.unparse(kept.node).split()), _QUOTED)


def _is_of_data_set(kept: _Kept) -> bool:
    """`self.images[index] = image`, of an object that is asked for items by their number."""
    owner = class_around(kept.made.tree, kept.made.scope)
    by_key = isinstance(kept.node, ast.Assign) and any(isinstance(item, ast.Subscript) for item in kept.node.targets)
    return (
        by_key
        and (variable(kept.container) or "").startswith("self.")
        and owner is not None
        and method_of(owner, ("__getitem__",)) is not None
    )


def _of_values(kept: _Kept, file: str, made: str) -> KeepingLine:
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(kept.names))
    place, held = _place(kept, file), f"`{ast.unparse(kept.container)}`"
    if _is_of_data_set(kept):
        here = kept.made.line is not None and spans(kept.node, kept.made.line)
        return KeepingLine(
            f"{'that line' if here else place} keeps each {names} in {held}",
            f"{place[0].upper()}{place[1:]} (`{_text(kept)}`) keeps each item that the data set was asked for: load it "
            "anew each time, keep it in the smaller dtype of its file, or bound that cache "
            "(`functools.lru_cache(maxsize=...)`).",
            container=ast.unparse(kept.container),
        )
    if kept.made.line is not None and spans(kept.node, kept.made.line):
        return KeepingLine(
            f"that line keeps each {names} in {held}",
            f"{place[0].upper()}{place[1:]} (`{_text(kept)}`) keeps all that it makes: keep a number or the few "
            "values of it that are read later (detach() alone keeps all of its values).",
            container=ast.unparse(kept.container),
        )
    graphs = () if _without_graph(kept.made, kept.node) else dict.fromkeys(kept.graphs)
    also = "".join(f" Keep `{name}.item()` in place of `{name}`, which holds its graph." for name in graphs)
    of = f", which {made} makes" if kept.made.line is not None else ""
    view = only_slice(kept.node, kept.names)
    few = "keep a number or a few values of it (detach() alone keeps all of its values)"
    keeps = f"each {names}{of}: leave it out, or {few}."
    if view is not None:
        keeps = f"`{view}`, a view, which holds the memory of all of {names}: keep `{view}.clone()`, or leave it out."
    return KeepingLine(
        f"{place} keeps each {names} in {held}",
        f"{place[0].upper()}{place[1:]} (`{_text(kept)}`) keeps {keeps}{also}",
        container=ast.unparse(kept.container),
    )


def _of_graphs(kept: _Kept, file: str, made: str) -> KeepingLine:
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(kept.graphs))
    place = _place(kept, file)
    if isinstance(kept.node, ast.AugAssign) and not isinstance(kept.node.value, ast.List):
        return KeepingLine(
            f"{place} adds up {names} with the graphs of all rounds",
            f"{place[0].upper()}{place[1:]} (`{_text(kept)}`) adds up {names} with the graphs of all rounds, and these "
            f"keep what {made} made: {_released(kept.made.region, 'add', 'or run the loop under torch.no_grad()')}.",
        )
    return KeepingLine(
        f"{place} keeps each {names} with its graph",
        f"{place[0].upper()}{place[1:]} (`{_text(kept)}`) keeps each {names} with its graph, and that keeps "
        f"what {made} made for it: {_released(kept.made.region, 'keep', _UNDER_NO_GRAD)}.",
    )


def _released(region: ast.AST, verb: str, otherwise: str) -> str:
    """What lets the graphs go: also without `retain_graph=True`, where the loop calls backward() so."""
    retained = [item for item in nodes_of(region) if isinstance(item, ast.Call) and retains(item)]
    if not retained:
        return f"{verb} numbers (`.item()`), {otherwise}"
    return (
        f"{verb} numbers (`.item()`), and call backward() for the loss of each round, without retain_graph=True "
        f"(line {retained[0].lineno}), which frees its graph"
    )


def _of_sums(found: Sequence[SummedGraph], file: str, made: str) -> KeepingLine | None:
    """Several sums of one loop, or of what other functions hand on."""
    if not found:
        return None
    first = found[0]
    names = list_words([f"`{shortened(ast.unparse(item.value), _QUOTED)}`" for item in found])
    numbers = sorted({item.node.lineno for item in found})
    together = numbers == [*range(numbers[0], numbers[-1] + 1)]
    lines = f"{numbers[0]} to {numbers[-1]}" if together and len(numbers) > _MOST else list_words([*map(str, numbers)])
    many = len(numbers) > 1
    where = line_in(first.file, first.node.lineno, file)
    place = where if not many else f"lines {lines}" + ("" if first.file == file else f" of {short_file(first.file)}")
    may = "" if all(item.level is Graph.SURE for item in found) else "may "
    keeps = any(isinstance(item.node, ast.Expr) for item in found)
    verb = ("keep", "keeps") if keeps else ("add up", "adds up")
    adds = f"{may}{verb[0]}" if many or may else verb[1]
    text = shortened(" ".join(ast.unparse(first.node).split()), _QUOTED)
    example = f"`{text}`, ..." if many else f"`{text}`"
    function = getattr(first.scope, "name", None)
    under = f"{function}()" if function is not None else f"the loop at {line_in(first.file, first.loop.lineno, file)}"
    return KeepingLine(
        f"{place} {adds} {names} with the graphs of all rounds",
        f"{capital(place)} ({example}) {adds} {names} with the graphs of all rounds, and these keep what {made} made: "
        f"{_released(first.loop, 'add', f'and run {under}, whose loop calls no backward(), under torch.no_grad()')}.",
        endless=not may,
    )
