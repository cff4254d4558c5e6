"""Why a loop has fewer rounds on one of two ranks, as far as records and source show it, and what to do about it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec
from msgspec import structs

from pytracer._text import capital, count_words
from pytracer.analyze.collectives.deciders import called_by, ends_early, is_within_round
from pytracer.analyze.collectives.ended_passes import is_gone_through
from pytracer.analyze.collectives.rounds import join_words, loop_words
from pytracer.analyze.collectives.same_rounds import Samples, differing_samples
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.evidence.slicing.by_rank import SizeSource, rounds_source
from pytracer.analyze.evidence.slicing.drawn_sizes import DrawnSize, drawn_size
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_SHARED = "DistributedSampler shares out one data set, which must be the same on all ranks"
_RANKS = 2  # that are compared
_MODULES = ("torch", "np", "numpy")
_OWN_DATA = (
    "Give all ranks as many: share out one data set by a DistributedSampler, or end each loop at the smallest "
    "len(loader) (all_reduce() it with MIN)"
)


class Uneven(msgspec.Struct, frozen=True):
    """What is known of it: the samples of both ranks, what gives a rank items of its own, what each draws for itself.

    `pairs`: the two ranks with their samples, in the order of the ranks.
    """

    here: str | None
    samples: Samples | None
    pairs: tuple[tuple[int, int], ...]
    source: SizeSource | None
    drawn: DrawnSize | None

    @property
    def words(self) -> str:
        """For the headline: `; the DataLoader has 32 samples on rank 0 and 40 on rank 1`; empty of nothing."""
        return "".join(f"; {item}" for item in (self.samples_words, self._cause) if item is not None)

    @property
    def samples_words(self) -> str | None:
        """As recorded."""
        if self.samples is None:
            return None
        (one, many), (other, others) = self.pairs
        counts = [self.samples.batches(item) for item in (many, others)]
        batches = ""
        if self.samples.size is not None and self.samples.size > 1:
            batches = f" ({counts[0]} and {counts[1]} batches of at most {self.samples.size})"
        return f"the DataLoader has {count_words(many, 'sample')} on rank {one} and {others} on rank {other}{batches}"

    @property
    def _cause(self) -> str | None:
        if self.source is not None and (self.source.split is not None or self.drawn is None):
            where = line_in(self.source.spot.file, self.source.line, self.here)
            gives = "gives each rank items of its own" if self.source.split is not None else "depends on the rank"
            return f"{where} (`{self.source.text}`) {gives}{self.source.left_out_words(self.here)}"
        return self.drawn.words(self.here) if self.drawn is not None else None

    def advice(self, same: str, join: str) -> str:
        """What to change.

        Args:
            same: How to have as many rounds, where nothing is known of the samples.
            join: What DDP's join() would do; empty where it would not help.
        """
        if self.samples is not None and self.samples.shared:
            made = self._draw_alike if self.drawn is not None else "compare its len() on all ranks, and what makes it"
            return f"{_SHARED}: {made}."
        if self.drawn is not None and self.samples is None and self.source is None:
            return f"{capital(self._draw_alike)}{join}."
        own = (self.cut_samples or _OWN_DATA) if self.samples is not None else self.cut
        said = f"{own}{join}." if own is not None else same
        return f"{said} {capital(self._draw_alike)}." if self.drawn is not None else said

    @property
    def cut(self) -> str | None:
        """Of `shards[rank::world_size]`: what leaves as many to each rank."""
        node = self.source.node if self.source is not None else None
        steps = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.step is not None
        name = variable(node.value) if isinstance(node, ast.Subscript) else None
        if self.source is None or not steps or self.samples is not None:
            return None
        where = line_in(self.source.spot.file, self.source.line, self.here)
        what = f"`{name}`" if name is not None else "what is shared out"
        if self.source.left_out is not None:
            node, spot = self.source.left_out
            first = line_in(spot.file, node.lineno, self.here)
            return (
                f"Leave items out before they are shared out: what {first} leaves out of the part of a rank makes its "
                f"rounds fewer, also where {where} gives all as many. If it leaves out none, cut {what} to a multiple "
                f"of the number of ranks at {where}. Or agree on the smallest number of rounds (all_reduce() with "
                "MIN), and stop there on all ranks"
            )
        return (
            f"Give all ranks as many: cut {what} to a multiple of the number of ranks at {where}, where each item "
            "gives as many rounds; else share out single samples, or agree on the smallest number of rounds "
            "(all_reduce() with MIN)"
        )

    @property
    def cut_samples(self) -> str | None:
        """As `cut`, of samples of which a rank has one more than the other: its split makes exactly that difference."""
        if self.source is None or self.source.split is None or len(self.pairs) != _RANKS:
            return None
        node, (one, other) = self.source.node, (count for _, count in self.pairs)
        whole = node.value if isinstance(node, ast.Subscript) else None
        if isinstance(whole, ast.Call):  # torch.split(rows, size)[rank], rows.chunk(world)[rank]
            is_method = isinstance(whole.func, ast.Attribute) and variable(whole.func.value) not in _MODULES
            whole = (
                whole.func.value
                if is_method and isinstance(whole.func, ast.Attribute)
                else next(iter(whole.args), None)
            )
        name = variable(whole) if whole is not None else None
        if abs(one - other) != 1 or name is None or self.drawn is not None:
            return None
        where = line_in(self.source.spot.file, self.source.line, self.here)
        return (
            f"Give all ranks as many: at {where} cut `{name}` to a multiple of the number n of ranks (`{name}[: "
            f"len({name}) // n * n]`), or repeat some of its items up to one{self._drop}. Or share out the whole by a "
            "DistributedSampler, or end each loop at the smallest len(loader) (all_reduce() it with MIN)"
        )

    @property
    def _drop(self) -> str:
        """What leaves out the one batch that a rank has more."""
        if self.samples is None or self.samples.drops:
            return ""
        counts = {self.samples.batches(count, drops=True) for _, count in self.pairs}
        number = counts.pop() if len(counts) == 1 else None
        return f", or pass `drop_last=True` to the DataLoader, so that each has {number}" if number else ""

    @property
    def _draw_alike(self) -> str:
        if self.drawn is None:
            return ""
        line = line_in(self.drawn.spot.file, self.drawn.line, self.here)
        if self.drawn.seeded is not None:
            return f"for {line} use a generator with one seed on all ranks, or draw on one rank and broadcast it"
        seed = f"seed `{self.drawn.library}`" if self.drawn.library is not None else "seed that generator"
        return f"{seed} with one number on all ranks before {line}, or draw on one rank and broadcast it"


def uneven(there: Side, absent: Side, frame: PythonFrame, loop: ast.AST) -> Uneven | None:
    """Of a loop that one rank is in and the other had left; None where nothing shows why.

    Args:
        there: The rank in the loop.
        absent: The other one.
        frame: Of the loop's function, among the lines that led the first to its call.
        loop: The loop.
    """
    frames = there.way[::-1]
    if frame not in frames or not isinstance(loop, (ast.For, ast.AsyncFor)):
        return None
    samples = differing_samples(there, absent, there.way.index(frame), loop)
    if samples is not None and samples.mine < samples.theirs:
        return None  # then the other one has more rounds, and left for another reason
    numbers = ((there.number, samples.mine), (absent.number, samples.theirs)) if samples is not None else ()
    slice_, depth = Slice(there.view.process.snapshot, frames), frames.index(frame)
    by_rank = rounds_source(slice_, depth, loop)
    split = by_rank is not None and by_rank.split is not None
    drawn = _drawn(slice_, program_files(there.view.process.snapshot, frames), depth, loop) if not split else None
    if samples is None and by_rank is None and drawn is None:
        return None
    return Uneven(there.way[-1].file, samples, tuple(sorted(numbers)), by_rank, drawn)


class FewerRounds(msgspec.Struct, frozen=True):
    """Of a rank that was done before another one: `subject` for the headline, behind it; `advice`: what to change."""

    subject: str
    advice: str


def fewer_rounds(waiter: ProcessView, call: Collective, absent: ProcessView) -> FewerRounds | None:
    """Of the innermost loop around the call of the rank that waits of which samples or draws show why; else None.

    Nothing is said behind a `break`, nor where the rank that left had taken part in the round.
    """
    there = Side(waiter, way_to(waiter, call), call)
    snapshot, frames = waiter.process.snapshot, there.way[::-1]
    if is_within_round(there):
        return None
    for frame in frames:
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for loop in reversed(rounds_around(tree, frame.line, called_by(there, there.way.index(frame)))):
            if is_gone_through(waiter, call, absent, frames.index(frame), loop):
                continue
            if ends_early(loop):
                return None
            found = uneven(there, structs.replace(there, view=absent), frame, loop)
            words = loop_words(snapshot, frame, loop, frames) if found is not None else None
            if found is None or words is None or (found.samples is None and found.drawn is None):
                continue
            line, _, same = words
            said = f"may have fewer rounds on rank {absent.process.rank}"
            said = f"is uneven: {found.samples_words}" if found.samples_words is not None else said
            return FewerRounds(
                found.words, f"The loop of {line} {said}. {found.advice(same, join_words(snapshot, frames[0]))}"
            )
    return None


def _drawn(
    slice_: Slice, files: Mapping[str, ast.Module], depth: int, loop: ast.For | ast.AsyncFor
) -> DrawnSize | None:
    spot = slice_.spot(depth)
    return drawn_size(slice_, files, loop.iter, structs.replace(spot, line=loop.lineno)) if spot is not None else None
