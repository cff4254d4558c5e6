"""An optimizer's list of parameters that its own test leaves empty: all are frozen, or no name is like that."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.frozen_models import frozen_model, frozen_subject, frozen_words
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

__all__ = ["frozen_subject", "no_parameter_passes"]

_EMPTY = "empty parameter list"


def no_parameter_passes(at: FailingLine) -> str | None:
    """`[p for n, p in net.named_parameters() if n.startswith("head.")]`."""
    frozen = frozen_model(at)
    if frozen is not None:
        return frozen_words(frozen)
    call = at.only(ast.Call) if _EMPTY in at.message else None
    given = call.args[0] if call is not None and call.args else None
    made = at.made(given) if given is not None and not isinstance(given, ast.ListComp) else None
    chosen = made.node if made is not None else given
    if not isinstance(chosen, ast.ListComp) or len(chosen.generators) != 1 or len(chosen.generators[0].ifs) != 1:
        return None
    test, drawn = chosen.generators[0].ifs[0], chosen.generators[0].iter
    if not isinstance(drawn, ast.Call) or not isinstance(drawn.func, ast.Attribute):
        return None
    if called_name(drawn) not in ("parameters", "named_parameters"):
        return None
    begin = f"No parameter passes `{source(test)}`{_place(at, made)}"
    names = {item.id for item in nodes_of(test) if isinstance(item, ast.Name)}
    target = chosen.generators[0].target
    if isinstance(test, ast.Attribute) and test.attr == "requires_grad":
        return (
            f"{begin}: every one is frozen then, or it has none{_freezing(at)}. Freeze only the part that shall stay, "
            "or make the new layers after that line."
        )
    if not isinstance(target, ast.Tuple) or not isinstance(target.elts[0], ast.Name) or target.elts[0].id not in names:
        return None
    return (
        f"{begin}: print the names that there are (`[n for n, _ in {source(drawn)}]`), and ask for those. A layer that "
        "is not among them is in a plain list or dict, or was not made yet."
    )


def _place(at: FailingLine, made: Made | None) -> str:
    return f" at {at.place(made.spot, made.node.lineno)}" if made is not None and hasattr(made.node, "lineno") else ""


def _freezing(at: FailingLine) -> str:
    """`` (line 12: `p.requires_grad = False`) ``, where there is one such line."""
    found = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, (ast.Assign, ast.Expr))
        if ast.unparse(item).replace(" ", "").endswith(("requires_grad=False", "requires_grad_(False)"))
        if not _is_behind(at, file, tree, item.lineno)
    ]
    return f" ({at.in_file(found[0][0], found[0][1].lineno)}: `{source(found[0][1])}`)" if len(found) == 1 else ""


def _is_behind(at: FailingLine, file: str, tree: ast.Module, line: int) -> bool:
    """Whether the failing line comes first, in the same function."""
    return file == at.frames[0].file and line > at.line and scope_of(tree, line) is at.scope
