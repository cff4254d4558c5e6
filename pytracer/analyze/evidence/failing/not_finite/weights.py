"""Weights that are NaN, which an update wrote and a later line met, and the lines of the loss that can have made it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.failing.not_finite.hazards import hazards_in
from pytracer.analyze.evidence.failing.not_finite.last_rounds import had_one_element
from pytracer.analyze.evidence.failing.not_finite.likeliest import likeliest, without_repeats
from pytracer.analyze.evidence.failing.not_finite.negative import by_negative_number
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.warned import warned_hazard
from pytracer.analyze.evidence.failing.recorded import Shape, shape_of
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes

_BAD = Pattern(r"with (?:nan|inf)$")
MOST_LINES = 3
_TRAINING = ("training_step", "compute_loss", "closure")
_WHICH = "torch.autograd.set_detect_anomaly(True) tells which."
_CHECK = "torch.autograd.set_detect_anomaly(True) names the operator"


class Weights(msgspec.Struct, frozen=True):
    """Of the module `name`: `9 of 9 with nan`; not `bad`: all of them finite."""

    name: str
    value: str
    bad: bool

    @property
    def words(self) -> str:
        """`the weights of `net` are NaN`, or have some."""
        kind = "NaN" if self.value.endswith("nan") else "infinite"
        if self.name.endswith(".weight"):
            return f"`{self.name}` has {kind.replace('infinite', 'inf')}"
        counts = re.match(r"(\d+) of (\d+) ", self.value)
        some = counts is None or counts[1] != counts[2]
        return f"the weights of `{self.name}` {'have' if some else 'are'} {'inf' if some and kind != 'NaN' else kind}"


def weights_of(at: FailingLine) -> Weights | None:
    """Those of the outermost frame that has them; None where none are recorded."""
    found = None
    for depth in range(len(at.frames)):
        for name, value in at.values_at(depth).items():
            whole = name.startswith("parameters of ")
            if not whole and not (name.endswith(".weight") and _BAD.search(value)):
                continue
            held = Weights(name.removeprefix("parameters of "), value, _BAD.search(value) is not None)
            if found is None or held.bad > found.bad or (held.bad == found.bad and _is_better(held, found)):
                found = held
    return found


def _is_better(one: Weights, other: Weights) -> bool:
    """The name that the training loop has for all of it, before a layer's."""
    return not one.name.endswith(".weight") and (one.name != "self" or other.name.endswith(".weight"))


def updated(at: FailingLine) -> bool:
    """Whether an optimizer had made a step, so that it can have written it."""
    return (getattr(at.snapshot, "step", None) or 0) > 0


def losses(at: FailingLine) -> list[Part]:
    """What backward() is called on: by the functions of the stack, else by the only other ones of the program."""
    here = [part for depth in range(len(at.frames)) if (spot := at.slice.spot(depth)) for part in _losses_of(spot)]
    if here:
        return here
    found: list[Part] = []
    for file, tree in at.files.items():
        for function in nodes_of(tree):
            if isinstance(function, (ast.FunctionDef, ast.Module)):
                found += _losses_of(Spot(file, tree, function, END))
    return found


def _losses_of(spot: Spot) -> Iterator[Part]:
    name = getattr(spot.scope, "name", "")
    for node in own_nodes(spot.scope):
        if isinstance(node, ast.Return) and name in _TRAINING and node.value is not None:
            yield Part(node.value, structs.replace(spot, line=node.lineno + 1))
        if not isinstance(node, ast.Call) or called_name(node) not in ("backward", "manual_backward"):
            continue
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        given = node.args[0] if node.args else owner
        if isinstance(given, ast.Call) and given.args and called_name(given) in ("scale", "scale_loss"):
            given = given.args[0]
        if given is not None:
            yield Part(given, structs.replace(spot, line=node.lineno))


def hazards_of(
    at: FailingLine,
    roots: Sequence[Part],
    fits: Callable[[Hazard], bool],
    known: Callable[[str, Spot], bool] | None = None,
) -> list[Hazard]:
    """Of what these are computed from, each line's expression once; only the most telling kind."""
    found: dict[tuple[str | None, int, str], Hazard] = {}
    for root in roots:
        for part in parts_of(at, root.node, root.spot, known):
            for item in (by_negative_number(at, one) for one in hazards_in(part)):
                if fits(item) and not _contradicted(at, item):
                    found.setdefault((item.spot.file, item.line, item.says), item)
    proven = {key: item for key, item in found.items() if proof(at, item)}
    if proven:
        return [*proven.values()]
    single = [item for item in found.values() if item.only == "single"]
    if len(single) == 1 and _are_bad(at) and had_one_element(at, single[0]):
        says = f"takes `{source(single[0].node)}` of a single element, as the last batch had one, which is NaN"
        return [structs.replace(single[0], says=says)]
    most = max((item.weight for item in found.values()), default=0)
    kept = without_repeats([item for item in found.values() if item.weight == most])
    return sorted(kept, key=lambda item: (item.spot.file != at.frame.file, item.spot.file or "", item.line))


def _are_bad(at: FailingLine) -> bool:
    weights = weights_of(at)
    return weights is not None and weights.bad


def proof(at: FailingLine, hazard: Hazard) -> str:
    """What is recorded that shows it: a batch of one that is left from the round before, or that the sizes leave."""
    if hazard.operand is None:
        return ""
    weights = weights_of(at)
    if weights is None or not weights.bad:  # of this round
        shown = _shown(at, hazard)
        if shown or hazard.only != "single":
            return shown
    if hazard.only != "single":
        return ""
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        if spot is None or spot.scope is not hazard.spot.scope or spot.file != hazard.spot.file:
            continue
        values = at.values_at(depth)
        loops = [item for item in own_nodes(spot.scope) if isinstance(item, LOOPS) and _spans(item, spot.line)]
        inner = max(loops, key=lambda item: item.lineno, default=None)
        if inner is None or not _spans(inner, hazard.line):
            return ""
        rest = _remainder(at, spot, [item for item in loops if isinstance(item, ast.For)])
        left = _left_of_one(spot, values, hazard, inner.end_lineno or 0, 1 if rest is not None else 2)
        if left is not None and rest is not None:
            return f"; `{left}` still has the one element of the round before, as {rest}"
        return (
            f"; `{left}` still has the one element of the round before"
            if left is not None
            else (f"; {rest}, so that the last round has one" if rest is not None else "")
        )
    return ""


def _shown(at: FailingLine, hazard: Hazard) -> str:
    """`; `mask` was [12] bool, 0 true`."""
    for text, value, shape in _operands(at, hazard):
        none = value.endswith(", 0 true") or (value.endswith(" 0") and not shape.sizes) or shape.elements == 0
        if (hazard.only == "single" and shape.elements == 1) or (hazard.only != "single" and none):
            return f"; `{text}` was {value}"
    return ""


def _contradicted(at: FailingLine, hazard: Hazard) -> bool:
    """Whether the operand is recorded, and is none that makes NaN; of another round where the weights are so."""
    weights = weights_of(at)
    if not hazard.only or (weights is not None and weights.bad):
        return False
    if variable(hazard.operand) is None if hazard.operand is not None else True:
        return False  # computed of others
    for _, value, shape in _operands(at, hazard):
        if hazard.only == "single" and shape.elements > 1 and shape.sizes[0] > 1:
            return True
        if hazard.only == "zero" and not shape.sizes and not value.endswith((" 0", "nan", "inf")):
            return True
    return False


def _operands(at: FailingLine, hazard: Hazard) -> Iterator[tuple[str, str, Shape]]:
    """What it works on, as far as it is recorded; of a parameter what the caller passed."""
    for node in nodes_of(hazard.operand) if hazard.operand is not None else ():
        if variable(node) is None:
            continue
        value, made = at.value_at(node, hazard.spot), None
        if value is None and isinstance(node, ast.Name) and is_parameter(hazard.spot.scope, node.id):
            made = at.slice.argument(node.id, hazard.spot)
            value = at.value_at(*made) if made is not None else None
        shape = shape_of(value)
        if value is not None and shape is not None:
            yield ast.unparse(made[0] if made is not None else node), value, shape


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", END) <= line <= (getattr(node, "end_lineno", 0) or 0)


def _left_of_one(spot: Spot, values: dict[str, str], hazard: Hazard, last: int, least: int) -> str | None:
    """A variable that this round has not set yet."""
    bound: dict[str, int] = {}
    for node in own_nodes(spot.scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for item in nodes_of(target):
                    name = variable(item)
                    if name is not None:
                        bound[name] = min(bound.get(name, END), node.lineno)
    later = [name for name, line in bound.items() if last >= line >= spot.line > hazard.line]
    found = [name for name in later if (shape := shape_of(values.get(name))) is not None and shape.sizes == (1,)]
    return found[0] if len(found) >= least else None


def _remainder(at: FailingLine, spot: Spot, loops: Sequence[ast.For]) -> str | None:
    """`129 = 2 * 64 + 1`, of `for start in range(0, 129, 64)`."""
    for item in loops:
        call = item.iter
        if not isinstance(call, ast.Call) or called_name(call) != "range" or len(call.args) != 3:
            continue
        first, end, step = (at.evaluated(part, spot) for part in call.args)
        if first == 0 and end and step and step > 1 and end % step == 1:
            return f"{end} = {end // step} * {step} + 1"
    return None


def place_of(at: FailingLine, hazard: Hazard) -> str:
    """`line 44`."""
    return at.in_file(hazard.spot.file, hazard.line)


def hazard_subject(at: FailingLine, found: Sequence[Hazard]) -> str:
    """`; line 44 takes ...`, or nothing."""
    if not found or len(found) > MOST_LINES:
        return ""
    if len(found) == 1:
        return f"; {place_of(at, found[0])} {found[0].says}{found[0].since}"
    told = warned_hazard(at, found)
    if told is not None:
        return f"; {told.clause}"
    first = likeliest(found)
    if first is not None:
        return f"; most likely {place_of(at, first)} made it: it {first.says}"
    if len(_places(at, found)) == 1:
        return f"; {place_of(at, found[0])} {', and '.join(item.says + item.since for item in found)}"
    return f"; {_lines(at, found)} can make it"


def _places(at: FailingLine, found: Sequence[Hazard]) -> list[str]:
    return [*dict.fromkeys(place_of(at, item) for item in found)]


def _lines(at: FailingLine, found: Sequence[Hazard]) -> str:
    places = _places(at, found)
    if all(item.startswith("line ") for item in places):
        places = [f"lines {places[0].removeprefix('line ')}", *(item.removeprefix("line ") for item in places[1:])]
    return " and ".join([", ".join(places[:-1]), places[-1]])


def hazard_advice(at: FailingLine, found: Sequence[Hazard]) -> str:
    """A sentence for each: what the line does, and what to write there."""
    if not found or len(found) > MOST_LINES:
        return ""
    told = warned_hazard(at, found)
    first = told.hazard if told is not None else likeliest(found)
    said = [f"{place_of(at, item)} {item.says}{proof(at, item)}: {item.make}." for item in found if item is not first]
    if told is not None:
        said = [f"Look first at {told.clause}; {told.hazard.make}.", *said]
    elif first is not None:
        said = [f"Most likely {place_of(at, first)} made it: it {first.says}; {first.make}.", *said]
    return " ".join(f"L{text[1:]}" if text.startswith("line ") else text for text in said)


def of_weights(at: FailingLine, weights: Weights, data: tuple[str, str] | None) -> tuple[str, str]:
    """For the headline, and what to do. `data`: the same of a value that was not finite before any layer."""
    roots = losses(at)
    since = " since an earlier update" if updated(at) and roots else ""
    since += " or what was loaded" if since and _loads(at) else ""
    subject = f"{weights.words}{since}"
    words = f"{subject[0].upper()}{subject[1:]}; line {at.line} only met it."
    if not roots:
        words += " No backward() of this program is known: look at how they were made or loaded."
    if data is not None:
        return f"{subject}, and {data[0]}", f"{words} {data[1]}"
    found = hazards_of(at, roots, lambda item: item.only != "empty") if since else []
    if not found or len(found) > MOST_LINES:
        return subject, " ".join(filter(None, (words, rate(at), _stop(at, roots))))
    which = f" {_WHICH}" if len(found) > 1 else ""
    return f"{subject}{hazard_subject(at, found)}", f"{words} {hazard_advice(at, found)}{which}"


def _loads(at: FailingLine) -> bool:
    """Whether the program loads weights, which may have had it."""
    names = ("load_state_dict", "load_model", "load_checkpoint", "from_pretrained")
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return any(called_name(item) in names for item in calls)


def _stop(at: FailingLine, roots: Sequence[Part]) -> str:
    """How to meet the first one."""
    if not roots:
        return ""
    root = roots[0]
    place = at.in_file(root.spot.file, getattr(root.node, "lineno", root.spot.line))
    return f"To meet the first one: `assert torch.isfinite({source(root.node)})` before {place}; {_CHECK}."


def rate(at: FailingLine) -> str:
    """The learning rate that the program sets, where nothing in the loss can make NaN."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and re.search(
                r"(?:^|\.)optim\.\w+$|^(?:Adam\w*|SGD|RMSprop)$", ast.unparse(item.func)
            ):
                given = keyword_value(item, "lr")
                given = given or (item.args[1] if len(item.args) > 1 else None)
                rate = f" (`{source(given)}`)" if given is not None else ""
                place = at.in_file(file, item.lineno)
                return f"Usual: a rate that is too high: lower that of {place}{rate}, and clip gradients."
    return ""
