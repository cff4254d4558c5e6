"""A call that one rank left out in a round that it took part in, and by what: an `if`, or fewer keys of a dict."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

import msgspec

from pytracer._text import capital, list_words, uncapital
from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.absent_gradients import parameter_places, parameters, parameters_of, stale_gradients
from pytracer.analyze.collectives.call_sites import calls_of_group, site_of
from pytracer.analyze.collectives.deciders import (
    Decider,
    Deciding,
    calls_from,
    calls_it,
    decider_in_round,
    is_about_gradient,
    is_within_round,
    only_decider,
)
from pytracer.analyze.collectives.deciding_tests import DECIDE, change_of_test
from pytracer.analyze.collectives.filled_keys import filled_keys
from pytracer.analyze.collectives.followed_tests import FollowedTest, followed_test
from pytracer.analyze.collectives.local_numbers import local_number
from pytracer.analyze.collectives.made_meanwhile import made_meanwhile
from pytracer.analyze.collectives.one_rank_tests import one_rank_subject
from pytracer.analyze.collectives.own_folders import own_folder
from pytracer.analyze.collectives.rank_objects import decided_by_rank
from pytracer.analyze.collectives.rounds import is_fixed, leaver_words
from pytracer.analyze.collectives.ways import Side, parted, quoted, way_to
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.operators.not_finite_lines import makers_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.gradients import asks_if_frozen, is_over_parameters, lines_that_freeze
from pytracer.analyze.evidence.syntax.layer_branches import LayerBranch, layer_branch
from pytracer.analyze.evidence.syntax.loops import LOOPS, deciding_ifs, last_of, loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_MOST = 3
TOGETHER = "Let all ranks leave out the same rounds: all_reduce() the flag (MAX) in each round"


class LeftOut(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to change; `places`: lines that show it."""

    subject: str | None
    advice: str
    places: tuple[Place, ...] = ()


class _Call(msgspec.Struct, frozen=True):
    """A call that `there` makes, and the rank of `absent` left out: by `by`, where that is known."""

    there: Side
    absent: Side
    by: Decider | None

    @property
    def call(self) -> Collective:
        """As the one rank made it."""
        return self.there.call


def left_out(found: Sequence[Deciding]) -> LeftOut | None:
    """What one of two ranks at different lines left out, where one thing alone can have decided that."""
    only = only_decider(found)
    return left_out_by(*only) if only is not None else None


def left_out_by(there: Side, absent: Side, by: Decider) -> LeftOut | None:
    """In words, of what may have decided."""
    return _words(_Call(there, absent, by))


def left_out_at_end(view: ProcessView, call: Collective, ended: ProcessView) -> LeftOut | None:
    """What a rank that ended had left out of the round in which another one waits for it.

    Args:
        view: The rank that waits.
        call: Its call.
        ended: The other one; its last call of the group is the one before, from the same line, in the same round.
    """
    there = Side(view, way_to(view, call), call)
    last = max(calls_of_group(ended, call.group), key=lambda item: item.sequence_nr, default=None)
    if last is None or last.sequence_nr != call.sequence_nr - 1 or site_of(last) != site_of(call):
        return None
    if not is_within_round(there) or last.step != call.step:
        return None
    by = decider_in_round(there, f"rank {ended.process.rank}")
    return _words(_Call(there, Side(ended, (), last), by)) if by is not None else None


def left_out_in_line(one: Side, other: Side) -> LeftOut | None:
    """What one of two ranks left out, which called another operation or passed another size from the same line.

    Where both passed both sizes from that line before, in an order that one of them broke; or by the model's order.
    A loop over parameters comes to the same one on both ranks, where none left out a call before.
    """
    found = _out_of_order(one, other)
    by = _only_test(one) if found is None else _only_test(found[0])
    if found is None and by is not None and is_about_gradient(by):
        found = _earlier_parameter(one, other)
    return _words(_Call(*found, by)) if found is not None else None


def _out_of_order(one: Side, other: Side) -> tuple[Side, Side] | None:
    """The rank that still makes a call, and the one that left it out."""
    histories = [_history(side) for side in (one, other)]
    if not all(histories):
        return None
    (mine, theirs), shapes = histories, (one.call.sizes, other.call.sizes)
    if shapes[0] not in theirs or shapes[1] not in mine:
        return None
    before = mine[-1]
    found = [(one, other)] if _follows(theirs, before, shapes[0]) else []
    found += [(other, one)] if _follows(mine, before, shapes[1]) else []
    return found[0] if len(found) == 1 else None


def _earlier_parameter(one: Side, other: Side) -> tuple[Side, Side] | None:
    """The rank whose call is for the earlier parameter, of a loop over all; the other one left that out."""
    places = [parameter_places(side.view, side.call) for side in (one, other)]
    if not all(places) or one.call.step != other.call.step or one.call.step is None:
        return None
    if parameters(one.view) != parameters(other.view):
        return None
    if max(places[0]) < min(places[1]):
        return one, other
    return (other, one) if max(places[1]) < min(places[0]) else None


def _only_test(side: Side) -> Decider | None:
    """The one `if` of the function that decides about its call."""
    frame = side.way[-1]
    tree = syntax_tree(side.view.process.snapshot, frame)
    tests = deciding_ifs(tree, frame.line) if tree is not None and frame.line is not None else []
    tests = [item for item in tests if item[1] or not isinstance(last_of(item[0].body), ast.Raise)]
    return Decider(frame, tree, *tests[0]) if tree is not None and len(tests) == 1 else None


def _history(side: Side) -> list[tuple[int, ...]]:
    """Sizes of earlier calls from the same line, in order."""
    return [item.sizes for item in calls_from(side, side)]


def _follows(history: Sequence[tuple[int, ...]], one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return any(pair == (one, other) for pair in itertools.pairwise(history))


def _words(found: _Call) -> LeftOut | None:
    by = found.by
    known = _of_one_rank(found, by) if by is not None else None
    if known is not None:
        return known
    if by is not None and isinstance(by.node, ast.If) and _is_in_turn(by) and not _alike(found):
        return _of_models(found)
    if by is None:
        return LeftOut(None, _unknown(found))
    if isinstance(by.node, ast.ExceptHandler):
        return _of_handler(found, by, by.node)
    if not isinstance(by.node, ast.If):
        return _of_keys(found, by)
    head = quoted(found.there.view.process.snapshot, by.frame, by.node.lineno)
    if head is None:
        return None
    if is_about_gradient(by):
        return _of_gradient(found, by, head)
    frames = found.there.way[::-1]
    snapshot, depth = found.there.view.process.snapshot, frames.index(by.frame)
    where = _line(by, found, by.node.lineno)
    test = followed_test(snapshot, frames, by.frame, by.node, around=by.around)
    if test is not None:
        return _of_followed(found, by, head, test)
    frozen = asks_if_frozen(by.node.test)
    change = _frozen_words(found) if frozen else change_of_test(by.node, by.tree)
    number = local_number(snapshot, frames, depth, by.node.lineno, by.node.test) if change == DECIDE else None
    own = f", by a `{number.name}` of its own ({number.place})" if number is not None else ""
    made = made_meanwhile(found.there, by) if change == DECIDE and number is None else None
    change = number.advice if number is not None else made.advice if made is not None else change
    own = made.subject if made is not None else own
    folder = own_folder(found.there, found.absent, by) if change == DECIDE else None
    change, own = (folder.advice, folder.subject) if folder is not None else (change, own)
    state = ", where the parameter is frozen" if frozen and isinstance(by.node.test, ast.Attribute) else ""
    what = f"a call of line {found.there.way[-1].line}" if _may_be_earlier(found, by) else f"the {found.call.op}"
    return LeftOut(
        f"{where} ({head}) skipped {what} on {found.absent.name}{state}{own}",
        f"{capital(where)} ({head}) decides about the call, and came out differently on {found.absent.name}: {change}",
    )


def _may_be_earlier(found: _Call, by: Decider) -> bool:
    """Whether it may have left out the call of an earlier round, of a loop that the other rank is not in."""
    there, absent = found.there, found.absent
    fork = parted(there.way, absent.way)
    beside = fork is not None and len(absent.way) > fork and by.frame == there.way[fork]
    line = absent.way[fork].line if beside and fork is not None else None
    around = loops_around(by.tree, by.node.lineno)
    return any(line is None or not spans(loop, line) for loop in around) and not is_within_round(there)


def _of_one_rank(found: _Call, by: Decider) -> LeftOut | None:
    """An `if` that asks for what one rank alone has as it is meant."""
    frames = found.there.way[::-1]
    if not isinstance(by.node, ast.If) or by.frame not in frames:
        return None
    snapshot, depth = found.there.view.process.snapshot, frames.index(by.frame)
    known = decided_by_rank(snapshot, frames, depth, by.node.lineno, by.node.test)
    said = one_rank_subject(found.there, found.absent, by, known) if known is not None else None
    return LeftOut(said, capital(known.advice)) if known is not None and said is not None else None


def _of_followed(found: _Call, by: Decider, head: str, test: FollowedTest) -> LeftOut:
    """With where the value comes from that is tested, and what to do about that."""
    where, absent, frame = _line(by, found, by.node.lineno), found.absent.name, found.there.way[-1]
    comes = f": {test.words}" if test.words is not None else ""
    said = f"{absent} left out a call of line {frame.line} by {where} ({head}){comes}"
    if test.not_finite is not None:
        who = absent if test.not_finite else found.there.name
        number = f"`{test.name}`" if test.name is not None else "what it asks for"
        makes = _makers(found, by, test)
        return LeftOut(
            said,
            f"{capital(number)} was not finite on {who} alone: look at its batch of that round (NaN or infinity in the "
            f"data, a division by 0).{f' {makes}' if makes else ''} {TOGETHER}, before {where} ({head}).",
        )
    if test.handler is not None:
        return LeftOut(
            said,
            f"An error came to {absent} alone: look for it in its output, and let it end the rank. Or: "
            f"{uncapital(TOGETHER)}, before {where} ({head}).",
        )
    asks = f"`{source(test.asks)}`" if test.asks is not None else where
    return LeftOut(
        said,
        f"{asks} came out differently on {absent}. {TOGETHER}, before {where} ({head}), or take part with zeros or "
        "another neutral value.",
    )


def _makers(found: _Call, by: Decider, test: FollowedTest) -> str:
    """The lines that can make NaN of the variable that an `if` asks about, in sentences."""
    frames = found.there.way[::-1]
    if test.name is None or test.words is not None or by.frame not in frames:
        return ""
    return makers_of(found.there.view.process.snapshot, frames[frames.index(by.frame) :], test.name, by.node.lineno)


# What only says that there is no more, or not yet.
_OF_DATA = (
    (
        frozenset({"StopIteration", "StopAsyncIteration"}),
        "The data of {0} had ended there: give all ranks as many rounds (drop or pad the rest).",
    ),
    (
        frozenset({"Empty", "QueueEmpty"}),
        "The queue of {0} was empty there, as its data came late or had ended: wait longer for it.",
    ),
)


def _of_handler(found: _Call, by: Decider, handler: ast.ExceptHandler) -> LeftOut:
    """An error that one rank alone caught."""
    kind = f"except {source(handler.type)}:" if handler.type is not None else "except:"
    where, absent, frame = _line(by, found, handler.lineno), found.absent.name, found.there.way[-1]
    said = f"{absent} left out a call of line {frame.line} by an error that {where} (`{kind}`) caught"
    together = f"{TOGETHER}, before the call of line {frame.line}"
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type or handler]
    names = {last_name(item) for item in kinds}
    ended = next((words for ends, words in _OF_DATA if names <= ends), None)
    if ended is not None:
        return LeftOut(said, f"{ended.format(absent)} {together}: {absent} alone passed it by.")
    if not _is_shown(handler):
        return LeftOut(
            said,
            f"{together}: {absent} alone passed it by. {capital(where)} (`{kind}`) shows nothing of the error that it "
            "catches: traceback.print_exc() there tells what it is. Or let the error end the rank.",
        )
    return LeftOut(
        said,
        f"Look in the output of {absent} for an error that {where} (`{kind}`) caught there: it left out a call of line "
        f"{frame.line}, which the other ranks made. Let the error end the rank. Or: {uncapital(TOGETHER)}, before "
        "that call.",
    )


def _is_shown(handler: ast.ExceptHandler) -> bool:
    """Whether the handler may print or log what it catches: it uses the error, or calls anything."""
    inside = [part for item in handler.body for part in nodes_of(item)]
    return any(
        isinstance(part, ast.Call) or (isinstance(part, ast.Name) and part.id == handler.name) for part in inside
    )


def _of_gradient(found: _Call, by: Decider, head: str) -> LeftOut:
    """A parameter that has a gradient on one rank only."""
    where, absent = _line(by, found, by.node.lineno), found.absent
    stale = stale_gradients(absent.view, found.call)
    fit = parameters_of(found.there.view, found.call, stale)
    files = program_files(found.there.view.process.snapshot, found.there.way[::-1])
    branch = layer_branch(files, stale) or layer_branch(files, fit)
    whose = f"of `{fit[0]}`" if len(fit) == 1 else f"of a parameter of {list(found.call.sizes)}"
    runs = f": {_branch_words(branch, found)}" if branch is not None else ""
    also = [f"`{name}`" for name in stale[:_MOST]]
    others = f" (there of {list_words(also)}{' among others' if len(stale) > _MOST else ''})" if len(also) > 1 else ""
    layer = f", or run `{branch.layer}` in each step, with its result times 0" if branch is not None else ""
    return LeftOut(
        f"{where} ({head}) skipped the {found.call.op} on {absent.name}, where the gradient {whose} was None{runs}",
        "Make the same calls on all ranks: set gradients that are None to zeros first (`p.grad = "
        f"torch.zeros_like(p)`), so that {where} ({head}) leaves out none; or let DistributedDataParallel with "
        f"find_unused_parameters=True average them{layer}. A gradient is None where the loss of that step does not "
        f"depend on the parameter{others}: which these are differs by rank and step, with the data.",
    )


def _branch_words(branch: LayerBranch, found: _Call) -> str:
    """`` `picture` runs only below `if has_picture.any():` (line 22) ``."""
    snapshot, decides = found.there.view.process.snapshot, branch.decides
    head = quoted(snapshot, PythonFrame(file=branch.file, line=decides.lineno), decides.lineno)
    at = line_in(branch.file, decides.lineno, found.there.way[-1].file)
    other = any(spans(item, branch.line) for item in decides.orelse)
    where = ("in the else of" if other else "below") if branch.around else "behind"
    return f"`{branch.layer}` runs only {where} {head} ({at}{'' if branch.around else ', which leaves'})"


def _frozen_words(found: _Call) -> str:
    """What to change about parameters that are frozen on one rank."""
    files = program_files(found.there.view.process.snapshot, found.there.way[::-1])
    places = [
        line_in(file, line, found.there.way[-1].file)
        for file, tree in files.items()
        for line in lines_that_freeze(tree)
    ]
    at = f" ({' and '.join(places)})" if 0 < len(places) <= _MOST else ""
    return f"freeze the same parameters on all ranks, in the same step{at}, or pass zeros for those that are frozen."


_IN_EACH_CASE = {
    False: "set it in each case, with 0 and a count of 0",
    True: "add its keys in each case, with 0 (a loss as `0.0 * output.sum()`, so that its layers have gradients)",
}


def _of_keys(found: _Call, by: Decider) -> LeftOut | None:
    """A loop over a dict that has fewer keys on the rank."""
    assert isinstance(by.node, LOOPS)
    text = quoted(found.there.view.process.snapshot, by.frame, by.node.lineno)
    keys = filled_keys(found.there, by.node) if calls_it(by, found.there) else None
    if keys is None or text is None:
        return None
    where = _line(by, found, by.node.lineno)
    said = f"`{keys.name}`, which {where} ({text}) goes through, has fewer keys on {found.absent.name}"
    set_at = f": {keys.words}" if keys.words is not None else ""
    return LeftOut(
        f"{said}{set_at}",
        f"Go through the same keys on all ranks in {where}: a fixed list of names, with zeros for what a rank does not "
        f"have (`{keys.name}.get(name, torch.zeros(()))`)"
        + (f". {capital(keys.words)}: {_IN_EACH_CASE[keys.added]}." if keys.words else "."),
    )


def _of_models(found: _Call) -> LeftOut | None:
    """A parameter that the model of one rank does not have."""
    other = parameters(found.absent.view)
    names = [name for name in parameters_of(found.there.view, found.call, ()) if name not in other]
    if len(names) != 1 or not other:
        return None
    has_none = f"the model of {found.absent.name} has no parameter `{names[0]}`"
    return LeftOut(
        has_none,
        f"Make the same model on all ranks: {has_none}, whose gradient {found.there.name} passes. Look at what decides "
        "about its layers there (the rank, options, data).",
    )


def _is_in_turn(by: Decider) -> bool:
    """Whether a loop around the condition may go through tensors, and not through numbers that the program gives."""
    around = loops_around(by.tree, by.node.lineno)
    return any(is_over_parameters(loop) or not is_fixed(loop) for loop in around)


def _alike(found: _Call) -> bool:
    """Whether both ranks go through the same tensors: parameters of one model, or what both have passed before."""
    there, absent = found.there, found.absent
    models = [parameters(side.view) for side in (there, absent)]
    if all(models):
        return models[0] == models[1]
    passed = [item.sizes for item in calls_from(absent, there)]
    return found.call.sizes in passed


def _line(by: Decider, found: _Call, number: int) -> str:
    """`line 6`, of the file of the call."""
    return line_in(by.frame.file, number, found.there.way[-1].file)


def _unknown(found: _Call) -> str:
    frame = found.there.way[-1]
    made = f"a tensor of {list(found.call.sizes)}, which it made in earlier rounds, and is ahead since"
    said = f"{found.absent.name.capitalize()} left out the call of line {frame.line} for {made}"
    leaver = leaver_words(found.there.view.process.snapshot, frame)
    seen = f": see whether {leaver} left it out. " if leaver is not None else ". "
    return f"{said}{seen}Let every rank make each call, with zeros where it has nothing."
