"""A collate_fn that left out all samples of a batch: which ones, the test that none passed, and what may hide why."""

from __future__ import annotations

import ast

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.data.datasets import getter, indices
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes

_FILE = "torch/utils/data/_utils/collate.py"
_MESSAGE = "list index out of range"  # of `batch[0]`
_MOST = 8
_WAY = "Or return None for such a batch, and skip it in the loop."


def empty_batch(at: FailingLine) -> str | None:
    """torch's default_collate was given an empty list."""
    call = at.only(ast.Call)
    if not _is_of_collate(at) or call is None or called_name(call) != "default_collate" or len(call.args) != 1:
        return None
    given: ast.AST = call.args[0]
    line = at.line
    if isinstance(given, ast.Name):
        bound = bound_value(at.scope, given.id, at.line)
        if bound is None or bound[1] is None:
            return None
        line, given = bound[0], bound[1]
    test, over = _kept(given)
    if test is None:
        return None
    those = _samples(at) if over is not None and over == _batch(at) else ""
    what = f"{at.here(line)} keeps only what passes `{test}`"
    none = f"{what}, which holds for {those or 'nothing that it was given'}"
    hidden = _hidden(at, of_none="None" in test or test.isidentifier()) if those else ""
    return f"default_collate() at {at.here(at.line)} was given an empty list: {none}.{hidden} {_WAY}"


def _is_of_collate(at: FailingLine) -> bool:
    frames = [item for item in at.stack[: at.stack.index(at.frame)] if (item.file or "").endswith(_FILE)]
    innermost = at.stack[0]
    return (
        at.kind == "IndexError"
        and at.message.startswith(_MESSAGE)
        and innermost in frames
        and innermost.function == "collate"
        and sum(item.function == "collate" for item in frames) == 1
    )


def _kept(given: ast.AST) -> tuple[str | None, str | None]:
    """The test of `[x for x in batch if ...]` or `list(filter(lambda x: ..., batch))`, and the list it goes over."""
    if isinstance(given, ast.Call) and called_name(given) in ("list", "tuple") and len(given.args) == 1:
        given = given.args[0]
    if isinstance(given, (ast.ListComp, ast.GeneratorExp)) and len(given.generators) == 1 and given.generators[0].ifs:
        loop = given.generators[0]
        over = loop.iter.id if isinstance(loop.iter, ast.Name) else None
        return " and ".join(source(item) for item in loop.ifs), over
    if isinstance(given, ast.Call) and called_name(given) == "filter" and len(given.args) == 2:
        test, items = given.args
        shown = source(test.body) if isinstance(test, ast.Lambda) else source(test)
        return shown, items.id if isinstance(items, ast.Name) else None
    return None, None


def _batch(at: FailingLine) -> str | None:
    """The collate_fn's parameter, where the line does not see another value of it."""
    scope = at.scope
    if not isinstance(scope, ast.FunctionDef):
        return None
    names = [item.arg for item in scope.args.args if item.arg not in ("self", "cls")]
    if not names or bound_value(scope, names[0], at.line) is not None:
        return None
    stores = [item for item in own_nodes(scope) if isinstance(item, ast.Name) and item.id == names[0]]
    return names[0] if all(isinstance(item.ctx, ast.Load) for item in stores) else None


def _samples(at: FailingLine) -> str:
    """`none of the samples 24, 25 and 26 of the dataset`, as the sampler asked for them."""
    found = indices(at)
    if not found or len(found) > _MOST:
        return "no sample of the batch"
    if len(found) == 1:
        return f"no sample of the batch (sample {found[0]} of the dataset)"
    return f"none of the samples {list_words([str(item) for item in found], _MOST)} of the dataset"


def _hidden(at: FailingLine, *, of_none: bool) -> str:
    """A handler in __getitem__, or in the program's decorator of it, that goes on."""
    found = getter(at)
    if found is None:
        return " Look at what the dataset returns for them."
    names = [called_name(item) if isinstance(item, ast.Call) else getattr(item, "id", None)
             for item in found.method.decorator_list]  # fmt: skip
    around = [function_named(found.spot.tree, name) for name in names if name]
    handlers = [
        item
        for scope in (found.method, *around)
        for item in (nodes_of(scope) if scope is not None else ())
        if isinstance(item, ast.ExceptHandler) and not any(isinstance(part, ast.Raise) for part in nodes_of(item))
    ]
    name = f"{found.owner.name}.__getitem__"
    if len(handlers) != 1 or not of_none:
        return f" Look at what {name} ({at.place(found.spot, found.method.lineno)}) returns for them."
    kind = f"except {ast.unparse(handlers[0].type)}" if handlers[0].type is not None else "except"
    where = at.place(found.spot, handlers[0].lineno)
    return f" The `{kind}:` at {where}, around {name}, may hide why: print the exception there."
