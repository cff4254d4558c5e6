"""Where the program makes a layer whose parameters had no gradient, and where it would use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import capital, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.exceptions.left_out_outputs import left_out_output, side_of
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.drawn_tests import draw_behind, drawn_words, seed_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.layer_branches import LayerBranch, layer_branch, modules_of, reads_of
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import line_in, short_file
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Module
from pytracer.report.job import PythonFrame

_TEXT = 50


class UnusedLayer(msgspec.Struct, frozen=True):
    """`words`: for the next step. `reason`: for the headline, why it took no part, where one line decides that.

    `places`: lines whose text is to be shown: of its use, and the one that leaves it out.
    """

    words: str
    reason: str | None = None
    places: tuple[Place, ...] = ()


def unused_layer(view: ProcessView, names: Sequence[str]) -> UnusedLayer | None:
    """Of parameters of one layer of the program's: its line, and the line of its use, with the `if` that decides.

    Args:
        view: The process that raised DDP's exception.
        names: Of the parameters, as `decoder.head.weight`.
    """
    files = program_files(view.process.snapshot, view.exception_stack_of_program)
    found = [
        (attribute, file, tree, owner, line, value)
        for attribute in modules_of(names)[:1]
        for file, tree in files.items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef)
        for line, value in _made(owner, attribute)
    ]
    if len(found) != 1:
        return None
    attribute, file, tree, owner, line, value = found[0]
    where = f"`{attribute}` ({_place(file, line)}: `{shortened(ast.unparse(value), _TEXT)}`)"
    short = f"`{attribute}` ({_place(file, line)})"
    used = sorted({(item.lineno, method.name) for method, item in reads_of(owner, attribute)})
    if not used:
        no_method = f"no method of {owner.name} uses"
        return UnusedLayer(f"{capital(no_method)} {where}: remove it, or use it in forward()", f"{no_method} {short}")
    if len(used) > 1:
        return None
    places = ((file, line), (file, used[0][0]))
    only = f"is used only at {_place(file, used[0][0])} in {used[0][1]}()"
    decides = next(iter(deciding_ifs(tree, used[0][0])), None)
    branch = layer_branch(files, names) if decides is None else None
    if branch is not None:
        said, why = _branch_words(view, files, branch)
        return UnusedLayer(f"{where} {said}: {why}", f"{short} {said}", (*places, (branch.file, branch.decides.lineno)))
    whole = decides is None and _are_all(view, names, attribute)
    left_out = left_out_output(view, files, owner, file, attribute) if whole else None
    if left_out is not None:
        here = view.exception_stack_of_program[0].file
        lacks, use = left_out.words_in(here), line_in(file, used[0][0], here)
        words = f"`{attribute}` makes {left_out.named} ({use}), and {lacks}: keep it in there, if with a weight of 0"
        return UnusedLayer(words, lacks, (*places, left_out.place))
    if decides is None:
        return UnusedLayer(
            f"{where} {only}: that line did not run, what it gives takes no part in the loss, or parts of it ran "
            "without gradients (torch.no_grad(), detach())",
            places=places,
        )
    test, around = decides
    by = f"`if {shortened(ast.unparse(test.test), _TEXT)}` (line {test.lineno})"
    said = f"{only}, {side_of(test, around, used[0][0])} {by}{'' if around else ', which leaves'}"
    words = f"{where} {said}: see what decides that here"
    return UnusedLayer(words, f"{short} {said}", (*places, (file, test.lineno)))


def _are_all(view: ProcessView, names: Sequence[str], attribute: str) -> bool:
    """Whether no recorded parameter of the layer had a gradient: else it ran, and what it gives is in the loss."""
    layer = [*names[0].split(".")[: names[0].split(".").index(attribute) + 1], ""]
    tensors = [item for fact in view.process.snapshot.recorded(Module) for item in fact.data.tensors]
    own = {item.fqn for item in tensors if item.role == "parameter" and item.fqn.startswith(".".join(layer))}
    return bool(own) and own <= set(names)


def _branch_words(view: ProcessView, files: Mapping[str, ast.Module], branch: LayerBranch) -> tuple[str, str]:
    """Of a list of layers, each of which a loop runs or leaves out: what decides, and what to see there."""
    snapshot, test, head = view.process.snapshot, branch.decides, shortened(ast.unparse(branch.decides.test), _TEXT)
    inside = branch.around and any(spans(item, branch.line) for item in test.orelse)
    how = "in the else of" if inside else "below" if branch.around else "behind"
    leaves = "" if branch.around else ", which leaves"
    said = f"runs only {how} `if {head}` ({_place(branch.file, test.lineno)}{leaves})"
    slice_ = Slice(snapshot, [PythonFrame(file=branch.file, line=branch.line)])
    spot = slice_.spot(0)
    draw = draw_behind(slice_, test, spot) if spot is not None else None
    if draw is None:
        return said, "see what decides that here"
    seeded = seed_words(files, draw, branch.file)
    return said, f"each rank draws {drawn_words(draw, branch.file, branch.file)} for itself{seeded}"


def _made(owner: ast.ClassDef, attribute: str) -> Iterator[tuple[int, ast.AST]]:
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for line, value, place in bindings_of(method, f"self.{attribute}"):
                if value is not None and place is None:
                    yield line, value


def _place(file: str, line: int) -> str:
    return f"{short_file(file)}:{line}"
