"""Values that one rank alone has, and that decide on each whether it calls a collective."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pytracer.analyze.collectives.rank_values import Compared
from tests.support.deaths import advice, finding, summary
from tests.unit.analyze.rules.test_parting import reported

PROGRAM = """\
def evaluate(model, rank):
    total = zeros(1)
    for batch in model:
        total += batch.mean()
    {0}
    return (total / 2).item()
def main(model, rank):
    best = 9.0
    for epoch in range(9):
        step()
        loss = evaluate(model, rank)
        {1}
        if loss < best:
            best = loss
            save(model)
def alike(value):
    if one_process:
        return value
    held = [value]
    dist.broadcast_object_list(held, 0)
    return held[0]
"""
WAY = [("main", 16)], [("main", 11)]
SENTENCE = "`loss` of line 14 (`if loss < best:`) differs between ranks, as "


def program(shares: str, later: str) -> str:
    """`shares` takes two lines."""
    return PROGRAM.format(shares if "\n" in shares else f"{shares}\n    pass", later)


@pytest.mark.parametrize(
    ("shares", "later", "words", "change"),
    [
        (
            "dist.reduce(total, 0)",
            "pass",
            "line 5 (`dist.reduce(total, 0)`) leaves the result on rank 0 only",
            "call all_reduce() there, or broadcast what rank 0 decides",
        ),
        (
            "torch.distributed.reduce(tensor=total, dst=root)",
            "pass",
            "line 5 (`torch.distributed.reduce(tensor=total, ds...`) leaves the result on rank `root` only",
            "call all_reduce() there",
        ),
        ("pass", "loss = best if rank != 0 else loss", "line 13 (", "broadcast it before that condition"),
        ("pass", "loss = best if rank == 0 else None", "line 13 (", "broadcast it before that condition"),
        (
            "if rank != 0:\n        return 0.0",
            "pass",
            "line 6 (`return 0.0`) sets it on the ranks other than rank 0 only",
            "broadcast it before",
        ),
    ],
)
def test_value_of_one_rank_is_followed_to_what_leaves_it_there(
    shares: str, later: str, words: str, change: str, run: Path
) -> None:
    """Through a function's `return`, an operation in place, and a choice by the rank."""
    report = reported(run, program(shares, later), *WAY, 3)
    assert SENTENCE + words in summary(report)
    assert change in advice(report)
    found = finding(report, "collective-mismatch")
    assert found is not None and not found.missing


@pytest.mark.parametrize(
    ("shares", "later"),
    [
        ("dist.all_reduce(total)", "pass"),
        ("dist.reduce(total, 0); dist.broadcast(total, 0)", "pass"),
        ("dist.reduce(other, 0)", "pass"),
        ("dist.reduce(total, 0)", "loss = share(loss)"),
        ("dist.reduce(total, 0)", "dist.broadcast_object_list(loss, 0)"),
        ("functools.reduce(total, 0)", "pass"),
        ("dist.reduce(total, 0)", "loss = 3.0"),
        ("if rank != 0:\n        log(total)", "pass"),
        ("dist.reduce(total, 0)", "loss = mpi.bcast(loss)"),
        ("dist.reduce(total, 0)", "loss = helper(loss)"),
        ("dist.reduce(total, 0)", "loss = alike(loss)"),
        ("pass", "loss = 3.0 if rank == 0 else 4.0"),
        ("if rank == 0:\n        total = 3.0\n    else:\n        total = 4.0", "pass"),
    ],
    ids=["all", "broadcast", "other", "library", "list", "no-collective", "set-anew", "only-logs"]
    + ["mpi", "unknown", "own-function", "either", "either-branch"],
)
def test_value_that_all_have_is_left_alone(shares: str, later: str, run: Path) -> None:
    """The look-alikes: shared after, another variable, set anew, of another library, one of each rank's own."""
    source = program(shares, later).replace("share(loss)", "accelerator.gather(loss)")
    assert "differs between ranks" not in summary(reported(run, source, *WAY, 3))


SAVES = """\
def evaluate(model):
    total, seen = zeros(1), zeros(1)
    {shares}
    return {made}
def main(model):
    best = 9.0
    for epoch in range(args.epochs):
        step()
        {got} = evaluate(model)
        {test}
            save(model)
    barrier()
"""
IN_LOOP = [("main", 11)], [("main", 12)]


def saves(shares: str, made: str = "total.item()", got: str = "loss", test: str = "if loss < best:") -> str:
    """Rank 0 saves in its last round, rank 1 is behind the loop."""
    return SAVES.format(shares=shares, made=made, got=got, test=test)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (saves("dist.reduce(total, dst=0)"), "loss"),
        (saves("dist.reduce(total, dst=0)", "total.item(), seen.item()", "loss, count"), "loss"),
        (saves("dist.reduce(total, dst=0)", "{'a': seen, 'b': total}", "m", "if m['b'] < best:"), "m['b']"),
        (saves("dist.gather(total, outs, dst=0)", "sum(outs).item()"), "loss"),
        (saves("dist.reduce(total, dst=0)", test="if stopper.better(loss):"), "loss"),
    ],
    ids=["number", "of-a-pair", "key", "gather", "method"],
)
def test_save_in_the_last_round(source: str, name: str, run: Path) -> None:
    """The rank that left it out is behind the loop: its rounds need not differ."""
    report = reported(run, source, *IN_LOOP, 3)
    assert f"`{name}` of line 10 (" in summary(report)
    assert "differs between ranks, as line 3 (`dist." in summary(report)
    assert "leaves the result on rank 0 only" in advice(report)


@pytest.mark.parametrize(
    "source",
    [
        saves("dist.all_reduce(total)"),
        saves("dist.reduce(seen, dst=0)"),
        saves("dist.reduce(seen, dst=0)", "total.item(), seen.item()", "loss, count"),
        saves("dist.reduce(total, dst=0)", "{'a': seen, 'b': total}", "m", "if m['a'] < best:"),
        saves("dist.reduce(total, dst=0)", test="if epoch % 2:"),
    ],
    ids=["all-reduce", "another", "other-of-a-pair", "other-key", "by-round"],
)
def test_save_by_what_all_have(source: str, run: Path) -> None:
    """The look-alikes: shared with all, or another part of what is returned."""
    assert "differs between ranks" not in summary(reported(run, source, *IN_LOOP, 3))


ROUNDS = """\
def evaluate(model):
    total = zeros(1)
    dist.reduce(total, dst=0)
    return total.item()
def main(model, rank):
    rows = load(rank)
    count = len(rows)
    for batch in {}:
        loss = evaluate(model)
        if loss < 9.0:
            step()
    barrier()
"""
HELD = "[] float32 8.5", "[] float32 7.25"


@pytest.mark.parametrize(
    ("head", "values", "named"),
    [
        ("rows", None, False),
        ("range(count)", None, False),
        ("rows", HELD, False),
        ("range(9)", HELD, False),
        ("range(args.epochs)", None, True),
        ("rows", (HELD[0], "[] float32 9.5"), True),
    ],
    ids=["rows", "their-number", "alike", "alike-in-settings", "settings", "apart"],
)
def test_if_of_a_loop_that_one_rank_left_earlier(
    head: str, values: tuple[str, str] | None, named: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said to have decided where it came out differently, or where the rounds are as many on all ranks."""
    monkeypatch.setattr(Compared, "pair", lambda _, node, __: values if ast.unparse(node) == "loss" else None)
    report = reported(run, ROUNDS.format(head), [("main", 11)], [("main", 12)], 3)
    assert ("differs between ranks" in summary(report)) == named


TELLS = """\
def main(model, rank, store):
    best = 9.0
    for epoch in range(9):
        step()
        loss = None
        {}
        if loss < best:
            save(model)
def agreed(store, rank):
    {}
    return {}
"""
IN_BRANCHES = """\
if rank == 0:
            loss = measured(model)
            {}
        else:
            {}"""
GOT = "if rank == 0:\n        loss = measured()\n        store.set('loss', loss)\n        return loss"
SUMMED = "total = {'a': zeros(1)}; dist.reduce(total['a'], 0)\n    "


def tells(shares: str, helper: str = "pass", returned: str = "0") -> tuple[str, int]:
    """The program, and the line of its save()."""
    source = TELLS.format(shares, helper, returned)
    return source, source[: source.index("save(model)")].count("\n") + 1


@pytest.mark.parametrize(
    "program",
    [
        tells(IN_BRANCHES.format("dist.broadcast_object_list([loss])", "dist.broadcast_object_list([loss])")),
        tells(IN_BRANCHES.format("dist.send(loss, 1)", "dist.recv(loss, 0)")),
        tells(IN_BRANCHES.format("dist.scatter(part, [loss])", "dist.scatter(loss)")),
        tells(IN_BRANCHES.format("store.set('loss', loss)", "loss = float(store.get('loss'))")),
        tells("loss = agreed(store, rank)", GOT, "float(store.get('loss'))"),
        tells(
            "loss = agreed(store, rank)['a']",
            f"{SUMMED}for value in total.values():\n        dist.broadcast(value, 0)",
            "total",
        ),
        tells(
            "loss = agreed(store, rank)['a']",
            f"{SUMMED}for n, (k, value) in enumerate(total.items()):\n        dist.broadcast(value, 0)",
            "total",
        ),
        tells(
            "loss = agreed(store, rank)['a']",
            f"{SUMMED}[dist.broadcast(value, 0) for value in total.values()]",
            "total",
        ),
        tells("loss = info['x'] if rank == 0 else infer(model)"),
    ],
    ids=[
        "broadcast",
        "sent",
        "scattered",
        "stored",
        "by-a-function",
        "items",
        "pairs",
        "comprehension",
        "not-infinity",
    ],
)
def test_value_that_one_rank_hands_on(program: tuple[str, int], run: Path) -> None:
    """Each rank has a line of its own for it, or the items are shared one by one: it need not differ."""
    source, line = program
    assert "differs between ranks" not in summary(reported(run, source, [("main", line)], [("main", 4)], 3))


@pytest.mark.parametrize(
    "program",
    [
        tells(IN_BRANCHES.format("log(loss)", "pass")),
        tells(IN_BRANCHES.format("dist.send(other, 1)", "dist.recv(other, 0)")),
        tells("loss = agreed(store, rank)", "if rank == 0:\n        return measured()", "None"),
        tells("loss = agreed(store, rank)", "if rank == 0:\n        return measured()", "-float('inf')"),
        tells(
            "loss = agreed(store, rank)['a']",
            f"{SUMMED}for value in others.values():\n        dist.broadcast(value, 0)",
            "total",
        ),
    ],
    ids=["only-logs", "another", "nothing", "infinity", "other-items"],
)
def test_value_that_one_rank_keeps(program: tuple[str, int], run: Path) -> None:
    """The same, where what it shares is another variable, or nothing."""
    source, line = program
    assert "`loss` of line" in (said := summary(reported(run, source, [("main", line)], [("main", 4)], 3)))
    assert "differs between ranks" in said


@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("if loss < best or elapsed > 9:", False),
        ("if not (epoch > 3 and ready(state)) and loss < best:", False),
        ("if best is None or loss < best:", True),
        ("if epoch % 2 == 0 and loss < best:", True),
        ("if args.save and loss < best:", True),
        ("if limit > 3 and loss < best:", True),
    ],
    ids=["time", "unknown", "same", "round", "option", "number"],
)
def test_condition_with_another_term(test: str, named: bool, run: Path) -> None:
    """One that need not be alike on all ranks may have decided; a round, an option or a number did not."""
    source = saves("dist.reduce(total, dst=0)", test=test).replace("best = 9.0", "best = 9.0; limit = 4")
    source = source.replace("step()", "step(); elapsed = time.monotonic() - begun")
    assert ("differs between ranks" in summary(reported(run, source, *IN_LOOP, 3))) == named
