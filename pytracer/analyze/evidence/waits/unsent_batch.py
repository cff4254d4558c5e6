"""A batch that a DataLoader worker could not send: what of it cannot be pickled, and which lines put it there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.failing.stored.pickled import defined_inside, makers, refused_kind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named, function_named, scope_of, spans
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.naming import indices_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.records import Text

_LONGEST = 60
_MOST = 2
_SEES = (
    "`DataLoader(timeout=...)` makes such a wait an error, and `pickle.dumps()` of a sample raises it where it can be "
    "seen."
)


def loaded_words(worker: ProcessView, before_ns: int) -> str:
    """`; it had just loaded samples 32-39`: the last batch that it had finished by then."""
    last, done = None, None
    for item in sorted(worker.process.snapshot.events, key=lambda event: event.mono_ns):
        if item.kind == "SAMPLE" and isinstance(item.data, Text) and item.mono_ns <= before_ns:
            last, done = (item.data.text, done) if item.data.text else (None, last)
    count, _, indices = (done or "").partition(" ")
    return f"; it had just loaded {indices_words(count, indices)}" if indices else ""


def batch_advice(view: ProcessView, wait: ProcessWait, worker: ProcessView, message: str) -> str | None:
    """What to return instead. `view`: the process that waits; None where the message names nothing."""
    kind, local = refused_kind(message)
    if kind is None and local is None:
        return None
    tree = syntax_tree(view.process.snapshot, wait.at)
    what = f"a `{kind}`" if kind is not None else "a lambda, or a function or class inside of a function,"
    made, state = "", "; or leave that attribute out in __getstate__()" if kind is not None else ""
    if tree is not None and kind is not None:
        made = _made(tree, worker, kind)
    elif tree is not None and local is not None:
        place = defined_inside(tree, local)
        made = f" (`{local}`, {place})" if place else f" (`{local}`)"
    returned = _returned(tree, worker, wait) if tree is not None else "`__getitem__` and `collate_fn`"
    return (
        f"A batch goes to the main process by pickle, and {what} cannot{made}. Return tensors, arrays, numbers or "
        f"texts from {returned}, for every sample{state}. {_SEES}"
    )


def _made(tree: ast.Module, worker: ProcessView, kind: str) -> str:
    """`: line 26 (`self.fp = open(path)`) keeps one in each Page`, and where it is dropped again."""
    lines = makers(tree, kind)
    if not lines or len(lines) > _MOST:
        return ""
    if len(lines) > 1:
        return f": lines {list_words([str(item.lineno) for item in lines])} make one"
    item = lines[0]
    text = f"line {item.lineno} (`{shortened(ast.unparse(item), _LONGEST)}`)"
    owner = class_around(tree, scope_of(tree, item.lineno))
    target = item.targets[0] if isinstance(item, ast.Assign) else item.target
    if owner is None or not isinstance(target, ast.Attribute):
        return f": {text} makes one"
    return f": {text} keeps one in each {owner.name}{_dropped(tree, worker, owner, target.attr, item.lineno)}"


def _dropped(tree: ast.Module, worker: ProcessView, owner: ast.ClassDef, name: str, made: int) -> str:
    """`; only load() drops it (line 34), which line 48 calls only `if page.mode == 'P5'``."""
    drops = [
        (method.name, item.lineno)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and not spans(method, made)
        for item in nodes_of(method)
        if _drops(item, name) and isinstance(item, ast.stmt)
    ]
    if len(drops) != 1:
        return ""
    method, line = drops[0]
    told = f"; only {method}() drops it (line {line})"
    getter = _getter(tree, worker)
    inside = nodes_of(getter) if getter is not None else ()
    calls = [item for item in inside if isinstance(item, ast.Call) and called_name(item) == method]
    if getter is None or len(calls) != 1:
        return told
    tests = [
        item
        for item in nodes_of(getter)
        if isinstance(item, ast.If) and any(spans(part, calls[0].lineno) for part in item.body)
    ]
    if not tests:
        return told
    return f"{told}, which line {calls[0].lineno} calls only `if {shortened(ast.unparse(tests[-1].test), _LONGEST)}`"


def _drops(item: ast.AST, name: str) -> bool:
    """`self.fp = None`, `del self.fp`."""
    targets = item.targets if isinstance(item, (ast.Assign, ast.Delete)) else []
    keeps = isinstance(item, ast.Assign) and not is_none(item.value)
    return not keeps and any(isinstance(target, ast.Attribute) and target.attr == name for target in targets)


def _getter(tree: ast.Module, worker: ProcessView) -> ast.FunctionDef | None:
    """`__getitem__` of the worker's dataset."""
    known = worker.process.snapshot.worker
    owner = class_named(tree, known.dataset.rpartition(".")[2]) if known is not None and known.dataset else None
    found = (item for item in (owner.body if owner is not None else ()) if isinstance(item, ast.FunctionDef))
    return next((item for item in found if item.name in ("__getitem__", "__iter__")), None)


def _returned(tree: ast.Module, worker: ProcessView, wait: ProcessWait) -> str:
    """`PageDataset.__getitem__ (line 45) and collate() (line 52)`."""
    getter, parts = _getter(tree, worker), []
    owner = class_around(tree, getter) if getter is not None else None
    if getter is not None and owner is not None:
        parts.append(f"{owner.name}.{getter.name}() (line {getter.lineno})")
    for name in dict.fromkeys(_collates(tree)):
        function = function_named(tree, name)
        if function is not None:
            parts.append(f"{name}() (line {function.lineno})")
    return list_words(parts) if parts else "`__getitem__` and `collate_fn`"


def _collates(tree: ast.Module) -> Iterator[str]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and called_name(item) == "DataLoader":
            yield from (
                word.value.id for word in item.keywords if word.arg == "collate_fn" and isinstance(word.value, ast.Name)
            )
