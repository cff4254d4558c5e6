"""The line whose loss leaves out an output of the model's forward, so that what makes it gets no gradient."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.failing.expressions import expression_at
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.gradient_flow import Flow
from pytracer.analyze.evidence.slicing.gradient_values import CARRIES, NOTHING, Level, Value
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body, statement_at
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Module
from pytracer.report.job import PythonFrame

_TEXT = 50
_MOST_CALLERS = 4
_OF_DDP = ("torch/nn/parallel/distributed.py", "torch/nn/modules/module.py")


class LeftOutOutput(msgspec.Struct, frozen=True):
    """`outputs`: what the program calls those that are left out; `place`: the line that does, with its text.

    `test`: the `if` that decides whether it runs, with how it comes there. `may`: the line only decides whether a line
    that has them runs.
    """

    outputs: tuple[str, ...]
    place: Place
    text: str
    test: str | None = None
    may: bool = False

    def words_in(self, here: str | None) -> str:
        """`` line 55 (`return align_loss`) leaves `noise_pred` out of the loss ``; `here`: the file spoken of."""
        where = line_in(self.place[0], self.place[1], here)
        leaves = "may leave" if self.may else "leaves"
        return f"{where} (`{self.text}`{self.test or ''}) {leaves} {self.named} out of the loss"

    @property
    def named(self) -> str:
        """`` `noise_pred` ``."""
        return list_words([f"`{item}`" for item in self.outputs])


def left_out_output(
    view: ProcessView, files: Mapping[str, ast.Module], owner: ast.ClassDef, file: str, layer: str
) -> LeftOutOutput | None:
    """Where forward() gives what a layer makes as one of several outputs; None where two lines may leave it out.

    Args:
        view: The process that raised DDP's exception, at the call of the model.
        files: Of the program.
        owner: The class of the model that DDP wraps.
        file: Its file.
        layer: An attribute of it.
    """
    modules = {fact.data.class_ or fact.data.module for fact in view.process.snapshot.recorded(Module)}
    frames = view.exception_stack_of_program
    forward = method_of(owner, ("forward",))
    if modules != {owner.name} or not frames or forward is None or not is_raised_by_ddp(view):
        return None
    slice_ = Slice(view.process.snapshot, frames)
    inside = Spot(file, files[file], forward, forward.lineno + 1)
    flow = Flow(slice_, None)
    made = flow.run(inside, {f"self.{layer}": CARRIES})
    seed, spot = _call(view, frames[0]), slice_.spot(0)
    if flow.escaped or seed is None or spot is None or not _is_certain(made):
        return None
    parts = (made.parts or {}).items()
    outputs = Value(CARRIES.ways, {key: CARRIES if item.carries else NOTHING for key, item in parts})
    found = _loss(slice_, seed, outputs, frames)
    names = _names(statement_at(spot.tree, seed.lineno), seed, outputs)
    return _left_out(files, *found, names) if found is not None and names else None


def is_raised_by_ddp(view: ProcessView) -> bool:
    """Whether the exception is the one of DDP's forward itself: not one that the program made of it."""
    innermost = next(iter(view.exception_stack), None)
    return innermost is not None and (innermost.file or "").endswith(_OF_DDP)


def _left_out(
    files: Mapping[str, ast.Module], loss: Value, decides: Mapping[Place, ast.AST | None], names: tuple[str, ...]
) -> LeftOutOutput | None:
    """The line that does on all ways; else the only branch that decides it."""
    places = {place for level, place in loss.ways if level == Level.NONE}
    if Level.CUT in loss.levels or len(places) != 1 or (not loss.lacks and len(decides) != 1):
        return None
    place = places.pop()
    branch, node = next(iter(decides.items())) if not loss.lacks else (place, None)
    if node is not None and branch is not None:
        text = _branch_text(files.get(branch[0] or ""), node)
        return LeftOutOutput(names, branch, text, may=True) if text is not None else None
    tree = files.get(place[0] or "") if place is not None else None
    statement = statement_at(tree, place[1]) if tree is not None and place is not None else None
    if place is None or tree is None or statement is None:
        return None
    tests = deciding_ifs(tree, place[1])
    if not loss.lacks and (len(tests) != 1 or branch != (place[0], scope_of(tree, place[1]).lineno)):  # type: ignore[union-attr]
        return None
    text = shortened(ast.unparse(statement).splitlines()[0], _TEXT)
    return LeftOutOutput(names, place, text, _test_words(*tests[0], place[1]) if not loss.lacks else None)


def _branch_text(tree: ast.Module | None, node: ast.AST) -> str | None:
    """`if n < 24`, `except ValueError`, or the statement of an expression that has two sides."""
    if isinstance(node, ast.If):
        return f"if {shortened(ast.unparse(node.test), _TEXT)}"
    if isinstance(node, ast.ExceptHandler):
        return ast.unparse(node).splitlines()[0].rstrip(":")
    statement = statement_at(tree, node.lineno) if tree is not None and isinstance(node, ast.IfExp) else None
    return shortened(ast.unparse(statement).splitlines()[0], _TEXT) if statement is not None else None


def _is_certain(outputs: Value) -> bool:
    """Several outputs, each with the gradient on all ways or on none, some of both."""
    parts = [*(outputs.parts or {}).values()]
    return (
        any(item.carries for item in parts)
        and all(item.carries or item.lacks for item in parts)
        and any(item.lacks for item in parts)
    )


def _call(view: ProcessView, frame: PythonFrame) -> ast.Call | None:
    """The call of the model: where it failed in its line, or the only one of that statement."""
    tree = syntax_tree(view.process.snapshot, frame)
    columns = view.exception.columns if view.exception is not None else None
    failed = expression_at(tree, columns) if tree is not None and columns is not None else None
    if isinstance(failed, ast.Call):
        return failed
    statement = statement_at(tree, frame.line) if tree is not None and frame.line is not None else None
    calls = [item for item in nodes_of(statement) if isinstance(item, ast.Call)] if statement is not None else []
    return calls[0] if len(calls) == 1 else None


def _loss(
    slice_: Slice, seed: ast.Call, outputs: Value, frames: list[PythonFrame]
) -> tuple[Value, Mapping[Place, ast.AST | None]] | None:
    """What backward() is called of: in the function that calls the model, or in one that is given its result.

    With the branches that decide whether it has the outputs.
    """
    value, decides = outputs, dict[Place, ast.AST | None]()
    for depth in range(min(_MOST_CALLERS, len(frames))):
        spot = slice_.spot(depth)
        if spot is None:
            return None
        flow = Flow(slice_, seed, value)
        value = flow.run(spot, {})
        decides |= flow.decides
        if flow.escaped or not flow.seen or len(flow.losses) > 1:
            return None
        if flow.losses:
            return next(iter(flow.losses.values())), decides
        outer = frames[depth + 1] if depth + 1 < len(frames) else None
        tree = slice_.spot(depth + 1)
        name = getattr(spot.scope, "name", None)
        if outer is None or outer.line is None or tree is None or value.lacks:
            return None
        calls = [item for item in nodes_of(tree.scope) if isinstance(item, ast.Call) and called_name(item) == name]
        if len(calls) != 1 or calls[0].lineno != outer.line:
            return None
        seed = calls[0]
    return None


def _names(statement: ast.stmt | None, seed: ast.Call, outputs: Value) -> tuple[str, ...]:
    """`noise_pred` of `noise_pred, align = model(x)`; else `out[0]`, `out.noise`, or the name of the part."""
    keys = [key for key, item in (outputs.parts or {}).items() if item.carries]
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is seed else None
    if isinstance(target, (ast.Tuple, ast.List)):
        named = [target.elts[key] for key in keys if isinstance(key, int) and key < len(target.elts)]
        return tuple(ast.unparse(item) for item in named)
    base = variable(target) if target is not None else None
    return tuple(f"{base}[{key!r}]" if base is not None else f"output {key!r}" for key in keys)


def _test_words(test: ast.If, around: bool, line: int) -> str:
    """`` , behind `if step < n:` of line 53 ``."""
    head = shortened(ast.unparse(test.test), _TEXT)
    return f", {side_of(test, around, line)} `if {head}` of line {test.lineno}"


def side_of(test: ast.If, around: bool, line: int) -> str:
    """`in the else of`, `below` or `behind`: how a line stands to an `if` of deciding_ifs()."""
    return "behind" if not around else "in the else of" if spans_body(test.orelse, line) else "below"
