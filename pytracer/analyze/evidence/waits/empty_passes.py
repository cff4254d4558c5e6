"""A loop without end whose passes find nothing: all that it yields, and all that ends it, is in a `for` without items.

`while True: for batch in loader: yield batch` goes round for ever, and takes all of a processor, where the DataLoader
has no batch: with drop_last=True and fewer samples than batch_size, or without a sample.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import count_words
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, without_wrappers
from pytracer.analyze.evidence.syntax.changes import is_among, is_own, names_read, touched
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans, spans_body, statement_at
from pytracer.analyze.evidence.syntax.single_streams import SingleStream, stream_of_loader
from pytracer.analyze.evidence.syntax.unbounded import (
    EndlessLoop,
    Reason,
    body_of,
    given_by,
    is_unbounded,
    leaves,
    loops_at,
    short_text,
)
from pytracer.analyze.evidence.waits.quiet import LONG_NS, pause_of, storage_epochs, work_times
from pytracer.analyze.evidence.waits.waits import before_signal
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Fact, Loader
from pytracer.report.job import PythonFrame

_LOADER = Pattern(r"/torch/utils/data/dataloader\.py$")
_BESIDE = Pattern(r"/torch/|/(abc|contextlib|typing)\.py$|^<frozen abc>")  # samplers, a profiler's range
_SAMPLES = Pattern(r"/torch/utils/data/(_utils/(collate|pin_memory|worker)|dataset|datapipes/)")
_PYTHON = Pattern(r"(lib)?python|libc[.-]|libpytracer_core")
_WRAPPERS = frozenset({"enumerate", "tqdm", "iter"})
_NOTED = 16  # DataLoaders of a process that are recorded


class EmptyPass(msgspec.Struct, frozen=True):
    """`frame`: where in the loop it was."""

    frame: PythonFrame
    loop: EndlessLoop
    reason: Reason


def empty_pass(view: ProcessView, stack: Sequence[PythonFrame], frame: PythonFrame, until_ns: int) -> EmptyPass | None:
    """Of the program's innermost frame, below which nothing ran but the DataLoader between two batches."""
    tree, above = syntax_tree(view.process.snapshot, frame), stack[: stack.index(frame)]
    if tree is None or frame.line is None or (above and not _is_before_batch(above)):
        return None
    scope = scope_of(tree, frame.line)
    for loop in loops_at(scope, frame.line):
        inner = _only_giver(scope, loop)
        if inner is None or spans_body(inner.body, frame.line):
            continue
        if not above and not _is_between(tree, inner, frame.line):
            continue
        made = _loader_of(tree, scope, inner)
        if not above and made is None and not _in_python(view):
            continue
        of_loader = bool(above) or made is not None
        stream = stream_of_loader(tree, made) if of_loader else None
        if stream is not None:
            return EmptyPass(frame, loop, _of_stream(view, loop, inner, stream, until_ns))
        reason = _of_loader(view, frame, loop, inner, made, until_ns) if of_loader else _of_any(loop, inner)
        return EmptyPass(frame, loop, reason) if reason is not None else None
    return None


def _is_before_batch(above: Sequence[PythonFrame]) -> bool:
    """Whether a DataLoader ran, but took no sample."""
    files = [item.file or "" for item in above]
    takes = any(_SAMPLES.search(item) for item in files)
    takes |= any((item.file or "").endswith("/fetch.py") and (item.function or "").endswith("fetch") for item in above)
    return not takes and _LOADER.search(files[-1]) is not None and all(_BESIDE.search(item) for item in files)


def _only_giver(scope: Scope, loop: EndlessLoop) -> ast.For | None:
    """The `for` directly in an endless loop that has all that yields or ends it; nothing begins after its last item."""
    inner = [item for item in loop.body if isinstance(item, ast.For)]
    if len(inner) != 1:
        return None
    own = {id(item) for item in nodes_of(inner[0])}
    if any(isinstance(item, (ast.Try, ast.Await)) and id(item) not in own for item in body_of(loop)):
        return None
    gives = [*given_by(loop), *leaves(loop)]
    if any(id(item) not in own for item in gives) or inner[0].orelse:
        return None
    if is_unbounded(loop):
        return inner[0] if gives else None
    return inner[0] if isinstance(loop, ast.While) and _goes_on(scope, loop, inner[0]) else None


def _goes_on(scope: Scope, loop: ast.While, inner: ast.For) -> bool:
    """`while step < steps`: only the inner loop changes what it reads."""
    names = names_read(loop.test)
    outside = [part for item in loop.body if item is not inner for part in (item, *own_nodes(item))]
    if not names or any(isinstance(item, ast.Call) for item in nodes_of(loop.test)):
        return False
    changed, within = touched(outside), touched(body_of(inner))
    free = all(is_own(scope, name) and not is_among(name, changed) for name in names)
    return free and any(is_among(name, within) for name in names)


def _is_between(tree: ast.Module, inner: ast.For, line: int) -> bool:
    """Whether it is at the head of the `for`, or at a line that calls nothing: calls of native code have no frame."""
    if spans(inner.iter, line) or spans(inner.target, line):
        return True
    at = statement_at(tree, line)
    if isinstance(at, PLAIN_LOOPS):
        return True
    return at is not None and not any(isinstance(item, ast.Call) for item in nodes_of(at))


def _in_python(view: ProcessView) -> bool:
    """Whether CPython itself ran, and no iterator of another library."""
    first = next(iter(before_signal(view)), None)
    return first is not None and _PYTHON.match(image_name(first.image)) is not None


def _loader_of(tree: ast.Module, scope: Scope, inner: ast.For) -> ast.Call | None:
    """The only `DataLoader(...)` that what it loops over is set to."""
    node = without_wrappers(inner.iter, _WRAPPERS)
    if isinstance(node, ast.Name):
        bound = lines_that_bind(scope, node.id) or lines_that_bind(tree, node.id)
        values = [value for _, value in bound]
    elif isinstance(node, ast.Attribute):
        sets = (item for item in nodes_of(tree) if isinstance(item, ast.Assign))
        values = [
            item.value
            for item in sets
            if any(isinstance(target, ast.Attribute) and target.attr == node.attr for target in item.targets)
        ]
    else:
        values = [node]
    found = [item for item in values if isinstance(item, ast.Call) and called_name(item) == "DataLoader"]
    return found[0] if len(found) == len(values) == 1 else None


def _verb(loop: EndlessLoop) -> str:
    return "yields" if given_by(loop) else "ends"


def _of_any(loop: EndlessLoop, inner: ast.For) -> Reason:
    items = short_text(inner.iter)
    return Reason(
        f"it {_verb(loop)} only inside of the loop of line {inner.lineno}: where `{items}` has no item, it goes round "
        "for ever",
        f"Print how many items `{items}` (line {inner.lineno}) has, such as by len(). Raise before line {loop.lineno} "
        "where it has none.",
    )


def _of_stream(view: ProcessView, loop: EndlessLoop, inner: ast.For, stream: SingleStream, until_ns: int) -> Reason:
    snapshot = view.process.snapshot
    quiet = not snapshot.light and _did_nothing(view, work_times(snapshot, until_ns), until_ns)
    head = f"it {_verb(loop)} only inside of the loop of line {inner.lineno}"
    return Reason(f"{head}, and {stream.words}", stream.advice, idle=quiet)


def _of_loader(
    view: ProcessView, frame: PythonFrame, loop: EndlessLoop, inner: ast.For, made: ast.Call | None, until_ns: int
) -> Reason | None:
    """None where all recorded loaders that it may be have batches."""
    snapshot, drops = view.process.snapshot, _drops(made)
    facts = [item for item in snapshot.recorded(Loader) if item.mono_ns >= snapshot.created_mono_ns]
    works = work_times(snapshot, until_ns)
    quiet = not snapshot.light and _did_nothing(view, works, until_ns)
    near = _candidates(facts, frame, made, drops)
    loaders, only = [item.data for item in near], len(facts) == 1
    empty = [item for item in loaders if _batches(item, made, drops, only=only) == 0]
    where = f" of line {made.lineno}" if made is not None else ""
    head = f"it {_verb(loop)} only inside of the loop of line {inner.lineno}, and the"
    if quiet and len(empty) == len(loaders) == 1 and len(facts) < _NOTED:
        words, advice = _why(empty[0], made)
        words = f"{head} DataLoader{where} had no batch when it was made: {words}"
        return Reason(words, f"{advice} {_raise(loop, inner)}", sure=True)
    # Of several that it may be, the last one, where nothing was done since that was made.
    last_one = bool(empty) and empty[-1] is loaders[-1] and max(works, default=0) < near[-1].mono_ns
    if quiet and last_one and made is not None:
        words, advice = _why(empty[-1], made)
        which = f"last DataLoader{where}" if len(near) > 1 else f"DataLoader{where}"
        words = f"{head} {which} had no batch when it was made: {words}"
        items = short_text(without_wrappers(inner.iter, _WRAPPERS))
        first = f"{advice[:-1]}, if this loop is over that one: print `len({items})` before line {loop.lineno}"
        return Reason(words, f"{first}, and raise there where it is 0.", idle=True)
    unknown = [item for item in loaders if _batches(item, made, drops, only=only) is None]
    if near and not unknown and not empty and len(facts) < _NOTED:
        return None
    last = near[-1].data if near and near[-1].data in unknown else None
    known = f"; the last one that was made had {_samples(last)}" if last is not None and last.samples else ""
    when = "has fewer samples than batch_size" if drops else "has no sample"
    when += ", or with drop_last=True fewer than batch_size" if drops is None else ""
    option = " (drop_last=True)" if drops else ""
    quiet &= not facts or until_ns - facts[-1].mono_ns >= LONG_NS
    cure = "pass drop_last=False, a smaller batch_size or more samples" if drops else "see why it has so few samples"
    return Reason(
        f"{head} DataLoader{where}{option} has no batch where it {when}{known}",
        f"{_print(loop, inner)} Where it is 0, {cure}, and raise there.",
        idle=quiet,
    )


def _did_nothing(view: ProcessView, works: Sequence[int], until_ns: int) -> bool:
    """No step or autograd node for long; of a program that never had one, nothing at all: it may only infer."""
    if works:
        return until_ns - max(works) >= LONG_NS
    pause = pause_of(view, until_ns)
    times, untimed = storage_epochs(view.process.snapshot, until_ns)
    return pause.still if pause is not None else not times and not untimed


def _print(loop: EndlessLoop, inner: ast.For) -> str:
    items = short_text(without_wrappers(inner.iter, _WRAPPERS))
    return f"Print `len({items})` before line {loop.lineno}."


def _raise(loop: EndlessLoop, inner: ast.For) -> str:
    items = short_text(without_wrappers(inner.iter, _WRAPPERS))
    return f"Raise before line {loop.lineno} where `len({items})` is 0."


def _drops(made: ast.Call | None) -> bool | None:
    """None: not known."""
    if made is None or any(item.arg is None for item in made.keywords):
        return None
    value = keyword_value(made, "drop_last")
    if value is None:
        return False
    return bool(value.value) if isinstance(value, ast.Constant) else None


def _size(made: ast.Call | None) -> int | None:
    value = keyword_value(made, "batch_size") if made is not None else None
    if value is None and made is not None and len(made.args) > 1:
        value = made.args[1]
    number = value.value if isinstance(value, ast.Constant) else None
    return number if isinstance(number, int) else None


def _candidates(
    facts: Sequence[Fact[Loader]], frame: PythonFrame, made: ast.Call | None, drops: bool | None
) -> list[Fact[Loader]]:
    """The recorded loaders that were made there; without one, those that a subclass made, which hides the line."""
    alike = [item for item in facts if _may_be(item.data, made, drops)]
    if made is None:
        return alike
    there = [item for item in alike if _is_at(item.data, frame, made)]
    return there or [item for item in alike if not _is_callers(item.data)]


def _is_at(loader: Loader, frame: PythonFrame, made: ast.Call) -> bool:
    at = loader.at
    return at is not None and at.file == frame.file and spans(made, at.line or 0)


def _is_callers(loader: Loader) -> bool:
    """Whether it is the line that makes the loader, and not one in the constructor of a subclass."""
    at = loader.at
    if at is None or is_library_file(at.file):
        return False
    return (at.function or "").rpartition(".")[2] != "__init__"


def _may_be(loader: Loader, made: ast.Call | None, drops: bool | None) -> bool:
    """Whether a recorded loader has what the source passes."""
    size = _size(made)
    same = None in (size, loader.batch_size) or size == loader.batch_size
    return same and (None in (drops, loader.drop_last) or drops == loader.drop_last)


def _batches(loader: Loader, made: ast.Call | None, drops: bool | None, *, only: bool) -> int | None:
    """Of an epoch; None: not known. Of older recordings by the source, where that has the numbers."""
    if loader.batches is not None:
        return loader.batches
    if not loader.plain or loader.samples is None:
        return None
    if not loader.samples or drops is False:
        return loader.samples
    size = _size(made) if only else None
    return loader.samples // size if size and drops else None


def _samples(loader: Loader) -> str:
    """`14 samples of VideoDataset`."""
    of = f" of {loader.dataset}" if loader.dataset is not None else ""
    return f"{count_words(loader.samples or 0, 'sample')}{of}"


def _why(loader: Loader, made: ast.Call | None) -> tuple[str, str]:
    size = loader.batch_size if loader.batch_size is not None else _size(made)
    if not loader.samples or size is None:
        return f"it had {_samples(loader)}", "See why its dataset is empty: the files that it looks for, its filter."
    share = f"it had {_samples(loader)}, fewer than its batch_size of {size}"
    if loader.distributed:
        share = f"the part of a rank of {_samples(loader)} was less than its batch_size of {size}"
    elif loader.samples >= size:
        share = f"its sampler drew fewer of its {_samples(loader)} than its batch_size of {size}"
    most = "" if loader.distributed or loader.samples >= size else f" (at most {loader.samples})"
    return (
        f"{share}, and drop_last=True leaves out what is no whole batch",
        f"Pass drop_last=False or a smaller batch_size{most}, or see why there are so few samples.",
    )
