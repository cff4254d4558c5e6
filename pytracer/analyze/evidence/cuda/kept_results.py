"""The statement that puts results of the device into what keeps them, and what to write in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import count_words, size_words
from pytracer.analyze.evidence.cuda.growth import Keeper, Repeated, grown_in_rounds, keepers
from pytracer.analyze.evidence.cuda.stores import ON_HOST, Stored, added_to, only_growing, put_into, sums_up
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of, spans
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import OutOfMemory

_DETACHED = Pattern(r"\bdetach\(|\.data\b")
_NO_GRAPH = Pattern(r"\bno_grad\b|\binference_mode\b")
_LAYER_CALL = "Module._call_impl"


class KeptResults(msgspec.Struct, frozen=True):
    """`subject`: for the headline. `evidence`: what was seen. `change`: what to do."""

    subject: str
    evidence: str
    change: str


def kept_results(view: ProcessView, last: OutOfMemory) -> KeptResults | None:
    """The first container, or number, that explains much of the device's memory."""
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack)
    if at is None:
        return None
    for keeper in keepers(view, at, last):
        stored = _stored(at, keeper)
        if stored is None and (keeper.total or not keeper.is_recorded):
            continue
        if keeper.total and stored is not None and not sums_up(at.files[stored.file], stored, keeper.name):
            continue
        if keeper.has_graphs and "." not in keeper.name and _in_layer(at, keeper.depth):
            continue
        if stored is not None and not keeper.is_recorded and not _may_keep(at, keeper, stored):
            continue
        return KeptResults(_subject(keeper, stored), _evidence(keeper), _change(at, keeper, stored))
    return _of_object(view, at, last)


def _of_object(view: ProcessView, at: FailingLine, last: OutOfMemory) -> KeptResults | None:
    """Growth, and the only statement of the program that fills an attribute which nothing empties."""
    grown = grown_in_rounds(view, last)
    if grown is None:
        return None
    blocks, rounds = grown
    depths = [n for n, item in enumerate(at.frames) if (item.file, item.function) == _place(blocks)]
    if not depths or _in_layer(at, depths[0]):
        return None
    found = only_growing(at)
    place = f"{short_file(blocks.frame.file)}:{blocks.frame.line}"
    stay = f"{blocks.count} blocks of {size_words(blocks.nbytes)}, allocated at {place} in {rounds} rounds, are live"
    if found is None:
        return KeptResults(
            f"memory grew from round to round at {place}",
            stay,
            f"Look for what keeps the results of {place} from round to round (a list, dict or attribute that each "
            "round adds to): keep a number, `.detach().cpu()`, or only the last one. A graph is kept until backward().",
        )
    return KeptResults(
        f"memory grew from round to round at {place}; {found.words} may keep it",
        stay,
        f"If nothing empties what {found.words} fills, keep of `{source(found.value)}` only what is read later (the "
        "last one, or a number computed from it), or move it to the host (`.detach().cpu()`).",
    )


def _place(blocks: Repeated) -> tuple[str, str]:
    return blocks.frame.file, blocks.frame.function


def _may_keep(at: FailingLine, keeper: Keeper, stored: Stored) -> bool:
    """Whether what it stores can keep memory of the device: not a number, nor a small tensor without a graph."""
    text = ast.unparse(stored.value)
    if ON_HOST.search(text):
        return False
    tree = at.files[stored.file]
    around = [item for item in nodes_of(tree) if isinstance(item, ast.With) and spans(item, stored.node.lineno)]
    heads = [part for item in around for part in item.items] + list(getattr(stored.scope, "decorator_list", []))
    without = _DETACHED.search(text) or any(_NO_GRAPH.search(ast.unparse(item)) for item in heads)
    return not (keeper.has_graphs and without)


def _in_layer(at: FailingLine, depth: int) -> bool:
    """Whether its frame is part of one forward pass, whose graph is needed whoever keeps its parts."""
    frame = at.frames[depth] if depth < len(at.frames) else at.frame
    places = [n for n, item in enumerate(at.stack) if item is frame]
    outside = at.stack[places[0] + 1 :] if places else ()
    return any(item.function == _LAYER_CALL for item in outside)


def _subject(keeper: Keeper, stored: Stored | None) -> str:
    by = f" ({stored.words})" if stored is not None else ""
    if keeper.total:
        return f"`{keeper.name}`{by} has an autograd graph, which keeps what each round allocated"
    if not keeper.is_recorded:
        what = "the autograd graph of each" if keeper.has_graphs else "each"
        return f"`{keeper.name}`{by} probably keeps {what} of its {keeper.count} results"
    if keeper.has_graphs:
        return f"`{keeper.name}`{by} keeps {count_words(keeper.graphs or 0, 'result')} with their autograd graphs"
    return f"`{keeper.name}`{by} keeps {count_words(keeper.count, 'tensor')}, {size_words(keeper.nbytes or 0)}"


def _evidence(keeper: Keeper) -> str:
    if not keeper.blocks or (keeper.is_recorded and not keeper.has_graphs):
        held = f"`{keeper.name}` held {count_words(keeper.count, 'tensor')} with {size_words(keeper.nbytes or 0)}"
        return f"{held} on devices when the exception left the program"
    shown = [
        f"{item.count} of {size_words(item.nbytes)} from {short_file(item.frame.file)}:{item.frame.line}"
        for item in keeper.blocks[:3]
    ]
    if keeper.total:
        return f"many live blocks are alike: {', '.join(shown)}"
    return f"`{keeper.name}` had {count_words(keeper.count, 'item')}, and live blocks go with them: {', '.join(shown)}"


def _change(at: FailingLine, keeper: Keeper, stored: Stored | None) -> str:
    what = source(stored.value) if stored is not None else "each result"
    text = f"`{what}`" if stored is not None else what
    if keeper.total:
        return f"Add up numbers, not graphs: `.item()` or `.detach()` of {text} ({stored.words if stored else ''})."
    if not keeper.has_graphs:
        return _of_tensors(keeper, stored, text)
    loop = _scope_around(at, keeper, stored)
    here, anywhere = _called_in(loop), set[str | None]().union(*map(_called_in, at.files.values()))
    function = getattr(loop, "name", None)
    under = f"{function}()" if function is not None else "the loop"
    if "backward" in here and _is_number(at, keeper):
        return (
            f"Call backward() for each {text} within the loop, divided by their number (gradients add up): it frees "
            f"the graph. Keep only `.detach()` of it in `{keeper.name}`."
        )
    if "backward" not in anywhere or ("eval" in here and "backward" not in here):
        return f"Run {under} under torch.no_grad() (or torch.inference_mode()), as it calls no backward()."
    return (
        f"If no backward pass needs these graphs, keep `.detach()` of {text}, or run {under} under torch.no_grad(). "
        "Otherwise call backward() within the loop: it frees the graph."
    )


def _of_tensors(keeper: Keeper, stored: Stored | None, text: str) -> str:
    if stored is None:
        return f"Keep fewer tensors in `{keeper.name}`, or move those that need not be on the device to the host."
    fewer = "only what is read later (the last one, or a number computed from it)"
    return f"Keep of {text} {fewer}, or move it to the host (`.detach().cpu()`), at {stored.words}."


def _called_in(scope: ast.AST | None) -> set[str | None]:
    return {called_name(item) for item in nodes_of(scope) if isinstance(item, ast.Call)} if scope is not None else set()


def _is_number(at: FailingLine, keeper: Keeper) -> bool:
    values = at.outer.get(keeper.depth, {}) if keeper.depth else at.values
    return values.get(f"{keeper.name}[0]", "").startswith("[] ")


def _scope_around(at: FailingLine, keeper: Keeper, stored: Stored | None) -> Scope | None:
    if stored is not None:
        return stored.scope
    frame = at.frames[keeper.depth] if keeper.depth < len(at.frames) else at.frame
    tree = at.files.get(frame.file or "")
    return scope_of(tree, frame.line or 0) if tree is not None else None


def _stored(at: FailingLine, keeper: Keeper) -> Stored | None:
    """The only one in the function whose variable it is; of an attribute, in the program."""
    frame = at.frames[keeper.depth] if keeper.depth < len(at.frames) else at.frame
    found = [*_stores(at, keeper)]
    if "." not in keeper.name:
        tree = at.files.get(frame.file or "")
        own = scope_of(tree, frame.line or 0) if tree is not None else None
        found = [item for item in found if item.scope is own] or found
    return found[0] if len(found) == 1 else None


def _stores(at: FailingLine, keeper: Keeper) -> Iterator[Stored]:
    for file, tree in at.files.items():
        for node in nodes_of(tree):
            if not isinstance(node, ast.stmt):
                continue
            value = added_to(node, keeper.name) if keeper.total else put_into(node, keeper.name)
            if value is not None:
                yield Stored(file, node, value, scope_of(tree, node.lineno))
