"""The loop that a rank can have left before the others did: by its own `break`, or because it had fewer rounds.

Or never before: a round in which it left the call out has the same look.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._text import capital, uncapital
from pytracer.analyze.collectives.dealt_samples import DealtSamples
from pytracer.analyze.collectives.deciders import called_by
from pytracer.analyze.collectives.ended_passes import is_gone_through
from pytracer.analyze.collectives.loaded_streams import Stream, stream_of
from pytracer.analyze.collectives.local_numbers import LocalNumber, number_at
from pytracer.analyze.collectives.one_rank_states import OneRankState, one_rank_state
from pytracer.analyze.collectives.own_lines import calls_itself
from pytracer.analyze.collectives.rounds import counts_numbers, is_fixed, leaver_words
from pytracer.analyze.collectives.stop_flags import StopFlag, stop_flag
from pytracer.analyze.collectives.ways import Side, quoted, way_to
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.slicing.by_rank import SizeSource, rounds_source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.own_batches import OwnBatches, own_batches
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import LOOPS, Loop, deciding_ifs
from pytracer.analyze.evidence.syntax.ranks import comes_alone, is_for_one_rank, one_rank_number
from pytracer.analyze.evidence.syntax.scopes import spans, spans_body
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Collective, Snapshot
from pytracer.report.job import PythonFrame

_MOST = 2
_AGREE = (
    "Decide on one rank and broadcast that, or all_reduce() the flag (MAX), so that all ranks stop in the same round."
)
_TELL = (
    "Broadcast what it decides to all ranks behind that branch, in each round, and let all of them leave the loop by "
    "that."
)
_JOIN = "wrap the loop in the join() context manager of DistributedDataParallel"
_STOP = "let all ranks stop together (all_reduce() a flag with MIN in each round)"
_SAMPLED = (
    "Give all ranks as many rounds: pad the parts to one length or drop what is over (DistributedSampler does it)"
)
_FILTERED = (
    "Leave items out before they are shared out, so that all ranks have as many, or agree on the smallest number of "
    "rounds (all_reduce() it with MIN) and stop there. Or"
)
_COUNTED = (
    "Give the range() of line {} the same numbers on all ranks: let one rank decide them and broadcast them "
    "(broadcast_object_list())."
)
_STREAMED = (
    "give all ranks as many samples: share them out by sample and not by file, and end each rank at the smallest "
    "number (all_reduce() it with MIN)"
)


class LeftLoop(msgspec.Struct, frozen=True):
    """A loop of the rank that is still in it. `ends`: statements that leave it; `source`: what its rounds depend on.

    `left_out`: what of it is left out, in words. `skipped`: a line that may have left out a round of it; `even`: it has
    as many on all ranks. `flag`: what sets that by which the one statement leaves it. `stream`: what its loader reads,
    which no sampler deals out. `joins`: the call is one that join() of DDP answers. `counts`: it is over a range() of
    numbers. `dealt`: what the line of `source` shares out. `number`: by which the one statement leaves it, each rank's
    own. `alone`: the branch on the rank by which only the rank that left comes to that statement. `state`: what the
    condition asks, and one rank alone changes. `sure`: both had gone through all that is in a round of it. `batches`:
    the program's own rule, by which what it goes through is made; `here`: the loop's file.
    """

    line: int
    text: str
    ends: tuple[tuple[int, str], ...] = ()
    source: SizeSource | None = None
    place: str = ""
    left_out: str = ""
    skipped: str | None = None
    even: bool = False
    flag: StopFlag | None = None
    stream: Stream | None = None
    joins: bool = True
    counts: bool = False
    dealt: DealtSamples | None = None
    number: LocalNumber | None = None
    alone: str | None = None
    state: OneRankState | None = None
    sure: bool = False
    batches: OwnBatches | None = None
    here: str | None = None

    def subject(self, left: str, *, is_gone: bool = False) -> str:
        """For the headline: what can have made the other rank leave; `is_gone`: its stack shows that it had left."""
        if self.state is not None:
            how = "had left" if is_gone or self.sure else "may have left"
            return f"{left} {how} the loop of line {self.line} ({self._shown_alone}): {self.state.subject}"
        if self.skipped is not None:
            other = "" if self.even else ", or had fewer rounds"
            return f"{left} may have left out a round of the loop of line {self.line} by {self.skipped}{other}"
        if self.batches is not None and not self.ends:
            return (
                f"the loop of line {self.line} may have fewer batches on {left}: {self.batches.rule(self.here)}"
                f"{self._of_part}"
            )
        if self.source is not None:
            return self._by_rank
        if self.stream is not None and not self.ends:
            return f"the loop of line {self.line} has as many rounds as `{self.stream.name}` gives on each rank"
        flag = f", which {self.flag.sets}" if self.flag is not None else ""
        if self.number is not None and not flag:
            flag = f", by a `{self.number.name}` of its own"
        if self.alone is not None:
            flag = f", to which it comes alone ({self.alone})"
        how = "had left {}, probably" if is_gone else "may have left {}"
        return f"{left} {how.format(f'the loop of line {self.line}')} by {self._shown}{flag}"

    def advice(self, left: str) -> str:
        """What to do."""
        if self.state is not None:
            return self.state.advice
        by_rank = self.source is not None and self.batches is None
        rounds = f"{capital(self._by_rank)}. {self.same_rounds}" if by_rank else self.same_rounds
        if self.skipped is not None:
            other = "" if self.even else f" If not: {uncapital(rounds)}"
            return (
                f"See whether {self.skipped} left out a round on {left}: then let all ranks skip it together "
                f"(all_reduce() the flag).{other}"
            )
        if not self.ends and (self.source is not None or self.stream is not None or self.batches is not None):
            return rounds
        if self.alone is not None:
            return (
                f"{capital(self._shown)} stands {self.alone}: {left} alone asks there, and ends the loop of line "
                f"{self.line} (`{self.text}`) for itself. {_TELL}"
            )
        several = len(self.ends) > 1
        return (
            f"See whether {self._shown} came out differently on {left}: {'they end' if several else 'it ends'} the "
            f"loop of line {self.line} (`{self.text}`) on one rank alone. "
            f"{self._agree}"
        )

    @property
    def _agree(self) -> str:
        if self.number is not None and self.flag is None:
            return capital(self.number.advice)
        return f"{f'{self.flag.why} ' if self.flag is not None else ''}{_AGREE}"

    @property
    def same_rounds(self) -> str:
        """What makes the ranks end in the same round, as advice."""
        together = _JOIN if self.joins else _STOP
        if self.counts:
            return _COUNTED.format(self.line)
        if self.batches is not None:
            return f"{self.batches.advice(self.here)}, or {together}."
        if self.left_out:
            return f"{_FILTERED} {together}."
        if self.stream is None:
            return f"{_SAMPLED}, or {together}."
        return f"{self.stream.words}, which no sampler deals out: {together}, or {_STREAMED}."

    @property
    def _of_part(self) -> str:
        """`` , and each rank has items of its own (line 25: `rank * part`) ``."""
        if self.source is None or self.source.split is None:
            return ""
        return f", and each rank has items of its own ({self.place}: `{self.source.text}`)"

    @property
    def _by_rank(self) -> str:
        whole = ast.unparse(self.source.node) if self.source is not None else ""
        source = self.source.text if self.source is not None and short(whole) != whole else whole
        if self.dealt is not None and self.source is not None and self.source.split is not None:
            return f"{self.place} (`{source}`) gives each rank a part of its own of {self.dealt.words}"
        on = f"the rank ({self.place}: `{source}`{self.left_out})"
        own = ", as that gives each rank items of its own" if self.source is not None and self.source.split else ""
        return f"the rounds of the loop of line {self.line} may depend on {on}{own}"

    @property
    def _shown_alone(self) -> str:
        """`` `while self.should_go_on(state):` ``, or `` by line 12 (`if self.stop:`) ``."""
        line, text = self.ends[0]
        return text if line == self.line else f"by line {line}: {text}"

    @property
    def _shown(self) -> str:
        return " or ".join(f"line {line} ({text})" for line, text in self.ends)


def left_loop(
    inside: ProcessView, call: Collective, left: Sequence[int], absent: ProcessView | None = None
) -> LeftLoop | None:
    """Of the loops around a rank's call, inside out, the first that can end on one rank alone.

    Args:
        inside: The rank.
        call: Its call.
        left: The ranks that called it no more.
        absent: The only one of them, where its calls are known.
    """
    there = Side(inside, way_to(inside, call), call)
    snapshot, frames = inside.process.snapshot, there.way[::-1]
    slice_ = Slice(snapshot, frames)
    skipping: LeftLoop | None = None
    outside = False  # of a loop that both had gone through alike
    joins = not calls_itself(snapshot, call) and not snapshot.recorded(Unit)
    for depth, frame in enumerate(frames):
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for loop in reversed(rounds_around(tree, frame.line, called_by(there, len(frames) - 1 - depth))):
            if absent is not None and is_gone_through(inside, call, absent, depth, loop):
                outside = True
                continue
            tests = [item for item in _ends(loop) if _may_come(tree, loop, item, left)]
            before, outside = outside, outside and is_fixed(loop)  # the rank may have left this one
            state = _state(snapshot, frames, depth, loop, tests, left)
            if state is not None:
                return structs.replace(state, sure=before)
            ends = tuple(
                (item.lineno, text) for item in tests if (text := quoted(snapshot, frame, item.lineno)) is not None
            )
            text = short(ast.unparse(loop).splitlines()[0])
            if 0 < len(ends) <= _MOST:
                one = tests[0] if len(tests) == 1 and frame.file is not None else None
                flag = (
                    stop_flag(program_files(snapshot, frames), frame.file or "", one.lineno, one.test) if one else None
                )
                number = number_at(snapshot, frames[::-1], len(frames) - 1 - depth, one) if one else None
                alone = _alone(tree, loop, one, left) if one is not None else None
                return LeftLoop(loop.lineno, text, ends, flag=flag, number=number, alone=alone)
            head = quoted(snapshot, frame, loop.lineno)
            if before and isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant) and head is not None:
                return LeftLoop(loop.lineno, text, ((loop.lineno, head),))
            known = loop_of_items(slice_, depth, loop, frame, joins=joins)
            skipped = next((said for item in frames[: depth + 1] if (said := leaver_words(snapshot, item))), None)
            if (known.source is not None or known.batches is not None) and not ends:
                return structs.replace(known, skipped=None if _is_of_items(known) else skipped)
            if skipping is None and (skipped is not None or known.stream is not None) and not ends:
                skipping = structs.replace(known, skipped=skipped, even=is_fixed(loop))
    return skipping


def loop_of_items(slice_: Slice, depth: int, loop: Loop, frame: PythonFrame, *, joins: bool) -> LeftLoop:
    """A loop with what its number of rounds comes from; `depth`: which of the slice's frames, from inside, has it."""
    text, stream = short(ast.unparse(loop).splitlines()[0]), stream_of(slice_, depth, loop)
    batches = own_batches(slice_, depth, loop)
    known = LeftLoop(
        loop.lineno, text, stream=stream, joins=joins, counts=counts_numbers(loop), batches=batches, here=frame.file
    )
    source = rounds_source(slice_, depth, loop)
    if source is None:
        return known
    return structs.replace(
        known, source=source, place=_place(frame, source), left_out=source.left_out_words(frame.file)
    )


def _state(
    snapshot: Snapshot,
    frames: Sequence[PythonFrame],
    depth: int,
    loop: Loop,
    tests: Sequence[ast.If],
    left: Sequence[int],
) -> LeftLoop | None:
    """Where a condition that ends the loop asks what one rank alone changes."""
    heads = (
        [(loop.lineno, loop.test)] if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant) else []
    )
    for line, test in [*heads, *((item.lineno, item.test) for item in tests)]:
        found = one_rank_state(snapshot, frames, depth, loop, line, test, left)
        text = quoted(snapshot, frames[depth], line)
        if found is not None and text is not None:
            return LeftLoop(loop.lineno, short(ast.unparse(loop).splitlines()[0]), ((line, text),), state=found)
    return None


def _is_of_items(loop: LeftLoop) -> bool:
    """Whether its rounds are known to come from the rank's own items.

    A rule by which batches end gives ranks of the same items as many.
    """
    return loop.source is not None and loop.source.split is not None


def _place(frame: PythonFrame, source: SizeSource) -> str:
    return line_in(source.spot.file, source.line, frame.file)


def _rank_branches(tree: ast.Module, loop: Loop, line: int) -> Iterator[tuple[ast.If, int, bool]]:
    """Each `if` of a loop that lets one rank alone come to a line, or all but one, with the number and which."""
    for item, around in deciding_ifs(tree, line):
        one, number = is_for_one_rank(item.test), one_rank_number(item.test)
        if one is not None and number is not None and spans(loop, item.lineno):
            yield item, number, comes_alone(item, line, around=around)


def _may_come(tree: ast.Module, loop: Loop, end: ast.If, ranks: Sequence[int]) -> bool:
    """Whether one of some ranks may leave a loop by an `if`, which may ask for the rank itself."""
    branches = [(number, alone) for _, number, alone in _rank_branches(tree, loop, end.lineno)]
    one, own = is_for_one_rank(end.test), one_rank_number(end.test)
    branches += [(own, one)] if one is not None and own is not None else []
    return any(all((number == rank) == alone for number, alone in branches) for rank in ranks)


def _alone(tree: ast.Module, loop: Loop, end: ast.If, ranks: Sequence[int]) -> str | None:
    """`` below `if rank == 0:`, line 12 ``: where the one rank alone comes to what ends the loop."""
    for item, number, alone in _rank_branches(tree, loop, end.lineno):
        if alone and [number] == [*ranks]:
            other = "in the else of" if spans(item, end.lineno) else "behind"
            where = "below" if spans_body(item.body, end.lineno) else other
            return f"{where} `if {source(item.test)}:`, line {item.lineno}"
    return None


def _ends(loop: Loop) -> Iterator[ast.If]:
    """The `if` statements with a `break` of that loop, or a `return`."""
    for item in _inside(loop):
        if isinstance(item, ast.If) and isinstance(item.body[-1], (ast.Break, ast.Return)):
            yield item


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for item in ast.iter_child_nodes(node):
        if isinstance(item, (*LOOPS, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        yield item
        yield from _inside(item)
