"""Ranks of which one is a call behind: what left it out, a loop with fewer rounds, and where both may be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.blackbox.numbers import Entry
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, finding, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

LOADER = {"dataset": "Rows", "iterable": False, "sampler": "DistributedSampler", "distributed": True, "plain": False}
PROGRAM = """\
class Trainer:
    def step(self, batch):
        loss = self.net(batch)
        if torch.isnan(loss):
            return None
        return loss
    def epoch(self, loader):
        for batch in loader:
            loss = self.step(batch)
            if loss is None:
                continue
            loss.backward()
def main():
    loader = DataLoader(rows, sampler=DistributedSampler(rows))
    trainer = Trainer(net)
    for number in range(3):
        trainer.epoch(loader)
        dist.all_reduce(total)
main()
"""
AHEAD, BEHIND = [("Trainer.epoch", 12), ("main", 17)], [("main", 18)]
NO_LOADERS: tuple[dict[str, object] | None, ...] = (None, None)
FEWER = "rank 0 was a call of line 12 behind"


def reported(
    run: Path,
    source: str = PROGRAM,
    loaders: Sequence[dict[str, object] | None] = (LOADER, LOADER),
    samples: tuple[int, int] = (96, 96),
    ways: Sequence[Sequence[tuple[str, int]]] = (BEHIND, AHEAD),
    library: Sequence[Frame] = (),
    *,
    sharded: bool = False,
    before: Sequence[tuple[str, int]] = (),
    called: Sequence[Frame] = (),
    second: dict[str, Any] | None = None,
) -> Report:
    """Rank 0 is behind the loop after five calls of both; rank 1 makes a sixth, called by way of `library`.

    `sharded`: FSDP has units; `before`: lines that called before. `called`: of torch, by the last
    line; `second`: what each completed call makes once more.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for rank, way in enumerate(ways):
        box, group, loader = job.boxes[rank], job.groups[rank]["0"], loaders[rank]
        if loader is not None:
            box._json(Entry.LOADER, {**loader, "initialized": True, "samples": samples[rank]})
        if sharded:
            box.unit("", [])
        last = (way[0][0], program, way[0][1])
        lines = [(function, program, line) for function, line in before]
        each: list[dict[str, Any]] = [{}] if second is None else [{}, second]
        calls = [(line, more) for line in [*lines, *[(ways[1][0][0], program, ways[1][0][1])] * 5] for more in each]
        for number, (line, more) in enumerate([*calls, (last, {})], 1):
            ends = number == len(calls) + 1
            size = [1] if ends and rank == 0 else [40]
            state = "failed" if ends else "completed"
            values: dict[str, Any] = {"sizes": size, "nbytes": 4 * size[0], **more}
            name = str(values.pop("name", "allreduce_"))
            box.collective(name, group=group, by=box.site(in_torch, line), sequence_nr=number, state=state, **values)
        own: list[Frame] = [(function, program, line) for function, line in way]
        stack = [
            in_torch,
            *(called if rank == 1 else ()),
            own[0],
            *(library if rank == 1 else ()),
            *own[1:],
            ("<module>", program, 19),
        ]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


def test_none_is_followed_to_the_condition_of_the_function_that_returned_it(run: Path) -> None:
    """All ranks have as many batches: only the `continue` can have left one out."""
    report = reported(run)
    assert summary(report).endswith(
        "; rank 0 left out a call of line 12 by line 10 (`if loss is None:`): step() returned `None` below "
        "`if torch.isnan(loss):` (line 4)."
    )
    assert advice(report).startswith("`loss` was not finite on rank 0 alone: look at its batch")
    found = finding(report, "collective-mismatch")
    assert found is not None and not found.missing


@pytest.mark.parametrize(
    ("loaders", "samples"),
    [
        ((LOADER, LOADER), (80, 96)),
        (NO_LOADERS, (96, 96)),
        (({**LOADER, "distributed": False}, {**LOADER, "distributed": False}), (96, 96)),
        (({**LOADER, "iterable": True}, {**LOADER, "iterable": True}), (96, 96)),
    ],
    ids=["fewer samples", "not recorded", "own sampler", "iterable"],
)
def test_loop_that_may_have_fewer_rounds_is_named_beside_it(
    loaders: Sequence[dict[str, object] | None], samples: tuple[int, int], run: Path
) -> None:
    """The look-alikes: what is not known is said as a choice."""
    report = reported(run, loaders=loaders, samples=samples)
    ways = "line 10 (`if loss is None:`) may have left one out, or the loop of line 8 has fewer rounds there."
    if samples == (80, 96):
        ways = (
            "the loop of line 8 may have fewer rounds there, or line 10 (`if loss is None:`) left one out; the "
            "DataLoader has 80 samples on rank 0 and 96 on rank 1."
        )
        assert summary(report) == (
            f"In program.py, {FEWER}: {ways} Ranks were at different lines in all_reduce (collective 6): rank 0 at "
            "line 18, rank 1 at line 12."
        )
    else:
        assert summary(report).endswith(f"; {FEWER}: {ways}")
    assert advice(report).startswith("Count the rounds of the loop of line 8 on both ranks")
    assert "If they differ, give all ranks as many: drop or pad the rest. If not, `loss` was not" in advice(report)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            loss.backward()\n", "            loss.backward()\n            if late(): break\n"),
        (
            "            if loss is None:",
            "            if skip(batch):\n                continue\n            if not loss:",
        ),
        ("            loss = self", "            with suppress(ValueError):\n             loss = self"),
    ],
    ids=["break", "two conditions", "suppress"],
)
def test_several_that_may_have_left_it_out(old: str, new: str, run: Path) -> None:
    """The look-alikes: a `break`, another condition, an error that a `with` hides."""
    more = new.count("\n") - old.count("\n")
    moved = 0 if old.startswith("            loss.b") else more
    ways = [("main", 18 + more)], [("Trainer.epoch", 12 + moved), ("main", 17 + more)]
    said = summary(reported(run, PROGRAM.replace(old, new), ways=ways))
    assert "left out a call" not in said or "suppress" in new


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "if loss is None:",
            "if len(batch) == 0:",
            "line 10 (`if len(batch) == 0:`) skipped a call of line 12 on rank 0.",
        ),
        (
            "        if torch.isnan(loss):\n            return None\n        return loss",
            "        ok = torch.isfinite(loss)\n\n        return loss if ok else None",
            "line 10 (`if loss is None:`) skipped a call of line 12 on rank 0.",
        ),
        (
            "if torch.isnan(loss):",
            "if not loss.requires_grad:",
            "step() returned `None` below `if not loss.requires_grad:` (line 4).",
        ),
        (
            "            loss = self.step(batch)\n            if loss is None:",
            "            bad = torch.isinf(batch).any()\n            if bad:",
            "by line 10 (`if bad:`): `bad` is `torch.isinf(batch).any()` of line 9.",
        ),
        (
            "if torch.isnan(loss):",
            "if isnan(loss) or isinf(loss):",
            "step() returned `None` below `if isnan(loss) or isinf(loss):` (line 4).",
        ),
        (
            "if torch.isnan(loss):",
            "if torch.isnan(loss) or loss > 10.0:",
            "step() returned `None` below `if torch.isnan(loss) or loss > 10.0:` (line 4).",
        ),
    ],
    ids=["empty", "choice in the return", "another condition", "variable", "two that ask the same", "two that do not"],
)
def test_what_a_condition_asks(old: str, new: str, words: str, run: Path) -> None:
    """A size, a value that is not followed, a condition of another kind, a variable."""
    report = reported(run, PROGRAM.replace(old, new))
    assert summary(report).endswith(words)
    assert ("not finite" in advice(report)) is ("isinf" in new)


def test_error_that_one_rank_caught(run: Path) -> None:
    """An `except` with `continue` before the call."""
    source = PROGRAM.replace(
        "            loss = self.step(batch)\n            if loss is None:\n                continue\n",
        "            try: loss = self.step(batch)\n            except ValueError:\n                continue\n",
    )
    report = reported(run, source)
    assert summary(report).endswith(
        "; rank 0 left out a call of line 12 by an error that line 10 (`except ValueError:`) caught."
    )
    assert advice(report).startswith("Let all ranks leave out the same rounds: all_reduce() the flag (MAX)")
    assert "Line 10 (`except ValueError:`) shows nothing of the error that it catches" in advice(report)
    assert advice(report).endswith("Or let the error end the rank.")
    assert "wait" not in advice(report)  # both ranks raised
    printed = source.replace(
        "ValueError:\n                continue", "ValueError as error:\n                print(error); continue"
    )
    assert advice(reported(run, printed)).startswith("Look in the output of rank 0 for an error")


ROUNDS = """\
            try: batch = next(rows)
            except {kind}: continue
            for p in {over}:
                dist.all_reduce(p.grad)
"""


def in_rounds(kind: str, over: str = "self.net.parameters()") -> str:
    """A loop of calls behind a `try` of the same round."""
    first, end = PROGRAM.index("            loss ="), PROGRAM.index("def main")
    return PROGRAM[:first] + ROUNDS.format(kind=kind, over=over) + PROGRAM[end:]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("StopIteration", "The data of rank 0 had ended there: give all ranks as many rounds"),
        ("queue.Empty", "The queue of rank 0 was empty there, as its data came late or had ended: wait longer"),
        ("FileNotFoundError", "Let all ranks leave out the same rounds"),
        ("(StopIteration, OSError)", "Let all ranks leave out the same rounds"),
    ],
)
def test_error_before_a_loop_over_parameters(kind: str, words: str, run: Path) -> None:
    """That loop has as many rounds on all ranks; an error that only ends the data needs no look at it."""
    report = reported(run, in_rounds(kind))
    assert summary(report).endswith(
        f"rank 0 left out a call of line 12 by an error that line 10 (`except {kind}:`) caught."
    )
    assert advice(report).startswith(words)
    assert ("traceback.print_exc()" in advice(report)) is ("Error" in kind)


def test_error_before_a_loop_that_may_have_no_round(run: Path) -> None:
    """The look-alike: a loop over items that the rank has."""
    source = in_rounds("OSError", "batch").replace("p.grad", "p")
    assert "caught" not in summary(reported(run, source))


def test_error_that_ends_the_rank_left_out_nothing(run: Path) -> None:
    """The look-alike."""
    source = PROGRAM.replace(
        "            loss = self.step(batch)\n            if loss is None:\n                continue\n",
        "            try: loss = self.step(batch)\n            except ValueError:\n                raise\n",
    )
    assert "left out" not in summary(reported(run, source))


def test_loop_that_ended_earlier_is_told_with_its_calls(run: Path) -> None:
    """Nothing in it can leave one out; what deals its items out by the rank is named."""
    source = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n").replace(
        "loader = DataLoader(rows, sampler=DistributedSampler(rows))", "loader = rows[rank::world]"
    )
    report = reported(run, source, NO_LOADERS)
    assert summary(report).endswith(
        "; rank 0 had left the loop of line 8 after 5 calls from line 12, rank 1 was in its 6th; line 14 "
        "(`rows[rank::world]`) gives each rank items of its own."
    )
    assert advice(report).startswith(
        "The loop of line 8 (`for batch in loader:`) ended on rank 0 after 5 calls from line 12, and has more rounds "
        "on rank 1. Give all ranks as many: cut `rows` to a multiple of the number of ranks at line 14, where each "
        "item gives as many rounds; else share out single samples, or agree on the smallest number of rounds"
    )


@pytest.mark.parametrize(
    ("over", "keys"),
    [("sorted(loader)", True), ("loader", True), ("loader.values()", True), ("sorted(loader, key=len)", False)],
)
def test_loop_over_a_dict_has_other_keys(over: str, keys: bool, run: Path) -> None:
    """Whose body looks up each key; the look-alike is a list."""
    source = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n")
    source = source.replace("for batch in loader:", f"for batch in {over}:").replace(
        "loader = DataLoader(rows, sampler=DistributedSampler(rows))", "loader = gather(rows)"
    )
    if keys and "values" not in over:
        source = source.replace("self.step(batch)", "self.step(loader[batch])")
    report = reported(run, source, NO_LOADERS)
    assert summary(report).endswith("rank 1 was in its 6th: `loader` has fewer keys on rank 0.") == keys
    assert ("Fill `loader` with the same keys on all ranks" in advice(report)) == keys


@pytest.mark.parametrize(("own", "sharded"), [(True, False), (False, False), (False, True)])
def test_join_answers_only_what_ddp_calls(own: bool, sharded: bool, run: Path) -> None:
    source = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n").replace(
        "loader = DataLoader(rows, sampler=DistributedSampler(rows))", "loader = rows[rank::world]"
    )
    source = source.replace("loss.backward()", "dist.all_reduce(loss)") if own else source
    said = advice(reported(run, source, NO_LOADERS, sharded=sharded))
    assert "Give all ranks as many: cut `rows`" in said
    assert ("DDP's join()" in said) != (own or sharded)


@pytest.mark.parametrize(
    ("before", "count"),
    [
        ([("Trainer.epoch", 12)] * 3 + [("main", 18)], 5),  # an earlier pass of the loop
        ([("Trainer.epoch", 12)] * 3 + [("elsewhere", 40)], 8),  # the loop may call that
        ([("main", 18)], 5),
    ],
)
def test_calls_are_counted_since_the_loop_began(before: list[tuple[str, int]], count: int, run: Path) -> None:
    """By a call that cannot be of it; else all are counted."""
    source = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n")
    said = summary(reported(run, source, NO_LOADERS, before=before))
    assert (
        f"rank 0 had left the loop of line 8 after {count} calls from line 12, rank 1 was in its {count + 1}th" in said
    )


@pytest.mark.parametrize(
    ("by", "second", "count"),
    [
        ("gather_object", {"name": "gather_"}, 5),  # the sizes first
        ("all_gather_object", {"dtype": "Byte"}, 5),
        ("Tensor.backward", {"sizes": [9], "nbytes": 36}, 5),  # two buckets
        ("Meter.sync", {"sizes": [9], "nbytes": 36}, 10),  # the look-alike: nothing tells that these are two of one
    ],
)
def test_collectives_that_one_call_makes_are_counted_once(
    by: str, second: dict[str, Any], count: int, run: Path
) -> None:
    source = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n")
    called: list[Frame] = [(by, f"{TORCH}/distributed/distributed_c10d.py", 3600)]
    said = summary(reported(run, source, NO_LOADERS, called=called, second=second))
    assert f"after {count} calls from line 12, rank 1 was in its {count + 1}th" in said


@pytest.mark.parametrize("more", ["if number == late: ", "with net.no_sync(): "], ids=["skipped", "no_sync"])
def test_call_behind_the_loop_that_may_have_been_passed_by(more: str, run: Path) -> None:
    """The look-alikes: rank 1 may be in the next round, or some rounds call nothing."""
    source = PROGRAM.replace("            if loss is None:\n                continue\n", "\n\n")
    line = "dist.all_reduce(total)" if more.startswith("if") else "loss.backward()"
    said = summary(reported(run, source.replace(line, more + line), NO_LOADERS))
    assert "had left the loop" not in said


@pytest.mark.parametrize(
    ("file", "known"), [(f"{TORCH}/utils/_contextlib.py", True), (f"{TORCH}/../lightning/loops.py", False)]
)
def test_library_between_the_lines_may_have_decided(file: str, known: bool, run: Path) -> None:
    """The look-alike: it has loops and conditions of its own."""
    said = summary(reported(run, library=[("run", file, 40)]))
    assert ("left out a call" in said) is known


@pytest.mark.parametrize(("by", "named"), [("batch.sum()", True), ("len(batch)", False)])
def test_line_that_makes_the_value_that_is_not_finite(by: str, named: bool, run: Path) -> None:
    """Where the source shows one."""
    source = PROGRAM.replace("loss = self.step(batch)", f"loss = self.net(batch) / {by}")
    report = reported(run, source.replace("if loss is None:", "if torch.isnan(loss):"))
    assert summary(report).endswith("left out a call of line 12 by line 10 (`if torch.isnan(loss):`).")
    assert advice(report).startswith("`loss` was not finite on rank 0 alone")
    assert (f"Line 9 divides by `{by}`, which may be 0" in advice(report)) == named


@pytest.mark.parametrize(
    ("behind", "named"),
    [
        ("loss = loss / batch.sum()", False),  # the next round gives a new one
        ("self.total = loss / batch.sum()", False),
        ("kept = loss / batch.sum()", True),  # which is added again
    ],
)
def test_line_behind_the_test_did_not_make_the_value(behind: str, named: bool, run: Path) -> None:
    """What the `if` asks about was there before, unless the loop carries it."""
    first = "loss = self.net(batch) + kept" if named else "loss = self.net(batch)"
    source = PROGRAM.replace("loss = self.step(batch)", first).replace("loss.backward()", f"loss.backward(); {behind}")
    said = advice(reported(run, source.replace("if loss is None:", "if torch.isnan(loss):")))
    assert said.startswith("`loss` was not finite on rank 0 alone")
    assert ("Line 12 divides by `batch.sum()`, which may be 0" in said) is named


@pytest.mark.parametrize("loaded", [True, False])
def test_dataset_of_a_loader_may_have_made_the_value(loaded: bool, run: Path) -> None:
    """Where no line between can: what it returns for a sample."""
    source = PROGRAM.replace("if loss is None:", "if torch.isnan(loss):") + (
        "class Rows:\n    def __getitem__(self, i):\n        x = self.rows[i]\n"
        "        x = (x - x.mean()) / x.std()\n        return x\n"
    )
    said = advice(reported(run, source if loaded else source.replace("DataLoader(", "batches(")))
    assert ("Line 23 divides by `x.std()`, which may be 0" in said) is loaded
