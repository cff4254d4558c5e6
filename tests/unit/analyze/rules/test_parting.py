"""Where two ranks parted, by the source of the function in which they are at different lines; and messages that differ
in number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import PythonFrame, Report
from tests.support.collectives import CLOSED, TIME_OUT, Ranks, call
from tests.support.deaths import advice, finding, summary
from tests.support.scenarios import SCRIPT, TORCH, program_in
from tests.support.synth import MS, Frame

DONE = call()
IN_TORCH: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
Way = Sequence[tuple[str, int]]  # functions of the program and their lines, the innermost first


def parted(run: Path, source: str, mine: Way, theirs: Way) -> str:
    """The advice where rank 0 is in an all_reduce below `mine`, and rank 1 in a broadcast below `theirs`."""
    return advice(reported(run, source, mine, theirs))


def reported(
    run: Path, source: str, mine: Way, theirs: Way, rounds: int = 1, handling: tuple[str, int] | None = None
) -> Report:
    """`rounds`: calls of both before. `handling`: where rank 1 had raised the error that it is handling."""
    program = program_in(run, source)
    job = Ranks(2)
    job.everybody(*[DONE] * rounds)
    job.calls(0, call(state="failed", line=44), first=rounds + 1)
    job.calls(1, call("broadcast_", root=0, state="failed", line=48), first=rounds + 1)
    for rank, line, way in ((0, 44, mine), (1, 48, theirs)):
        stack = [IN_TORCH, ("step", SCRIPT, line), *((function, str(program), number) for function, number in way)]
        context = []
        if handling is not None and rank == 1:
            raised = {"function": handling[0], "file": str(program), "line": handling[1]}
            context = [{"type": "KeyError", "message": "label", "python_stack": [raised]}]
        job.boxes[rank].at(7000 + rank).exception("RuntimeError", TIME_OUT, stack, context=context).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


LOOP = """def fit(batches):
    for batch in batches:
        step(batch)
        {0}
            {1}
    save()
"""


@pytest.mark.parametrize(
    ("test", "way", "words"),
    [
        ("if bad(batch):", "break", "See whether line 4 (`if bad(batch):`), which ends it, came out differently"),
        ("if bad(batch):", "print(batch)", "Its number of rounds may differ: make it the same on all ranks"),
    ],
)
def test_loop_that_one_rank_left_is_named_with_what_ends_it(test: str, way: str, words: str, run: Path) -> None:
    """A `break` below an `if`; the look-alike has none, so that its rounds, or what each of them calls, may differ."""
    said = parted(run, LOOP.format(test, way), [("fit", 3)], [("fit", 6)])
    assert said.startswith("Rank 1 was behind the loop of line 2 (`for batch in batches:`), rank 0 still in it. ")
    assert words in said


def test_rounds_that_depend_on_the_rank_are_told(run: Path) -> None:
    """The head of the loop names it."""
    source = "def fit(files, rank):\n    for file in files[rank::2]:\n        step(file)\n    save()\n"
    assert "may depend on the rank" in parted(run, source, [("fit", 3)], [("fit", 4)])


def test_error_that_led_a_rank_out_of_a_loop_is_the_reason_and_not_its_number_of_rounds(run: Path) -> None:
    """By a `finally` that communicates; the look-alike was handling nothing."""
    source = (
        "def fit(timer):\n    try:\n        while not time.time() > end:\n            step()\n    finally:\n"
        "        save()\n"
    )
    report = reported(run, source, [("fit", 4)], [("fit", 6)], 3, handling=("fit", 4))
    assert summary(report).endswith(", where it was handling KeyError: label at program.py:4 in fit.")
    assert "loop" not in summary(report)
    assert "the `finally` of program.py:6 calls a collective" in advice(report)
    assert "had left the loop of line 3" in summary(reported(run, source, [("fit", 4)], [("fit", 6)], 3))


STOPS = """def fit(control, start):
    {head}
        step()
        {test}
            break
    save()
class Control:
    stop = False
    def install(self):
        {install}
    def on_stop(self, number, frame):
        self.stop = True
        {more}
"""
SURE = "; rank 1 had left the loop of line 2 by line 4 ("
STOP = {"head": "for n in range(100):", "test": "if control.stop:", "install": "pass", "more": "pass"}
SIGNAL = "signal.signal(signal.SIGUSR1, self.on_stop)"


@pytest.mark.parametrize(
    ("parts", "words", "more"),
    [
        (
            {"install": SIGNAL},
            f"{SURE}`if control.stop:`), which its SIGUSR1 handler sets (line 12).",
            "A signal comes",
        ),
        ({"install": f"if rank == 0:\n            {SIGNAL}", "more": ""}, "handler sets (line 13).", "Only rank 0 has"),
        (
            {"head": "while True:"},
            f"{SURE}`if control.stop:`), which line 12 sets.",
            "It is set on each rank by itself",
        ),
        ({"test": "if time.time() - start > 60:"}, "which goes by the clock of each process.", "a clock of its own"),
        ({"test": "if lost():"}, f"{SURE}`if lost():`).", "Agree before line 4: all_reduce() the flag (MAX)"),
    ],
)
def test_flag_by_which_one_rank_left_the_loop_is_followed(
    parts: dict[str, str], words: str, more: str, run: Path
) -> None:
    """To the handler of a signal, a clock, or the one line that sets it."""
    report = reported(run, STOPS.format(**{**STOP, **parts}), [("fit", 3)], [("fit", 6)], 3)
    assert words in summary(report)
    assert more in advice(report)


TIMERS = """def fit(timer, args):
    while {test}:
        step()
    save()
class Timer:
    @property
    def elapsed(self):
        return {clock}
    def expired(self):
        return self.elapsed >= self.budget
"""
CLOCK = "time.monotonic() - self.started"


@pytest.mark.parametrize(
    ("test", "by"),
    [
        ("not timer.expired()", "timer.expired()"),
        ("step < args.max_steps and not timer.expired()", "timer.expired()"),
        ("args.steps and timer.elapsed < args.budget", "timer.elapsed"),
    ],
)
def test_method_of_a_timer_by_which_a_rank_left_the_loop_is_followed_to_its_clock(
    test: str, by: str, run: Path
) -> None:
    """Through a property; beside it only what is the same on all ranks."""
    report = reported(run, TIMERS.format(test=test, clock=CLOCK), [("fit", 3)], [("fit", 4)], 3)
    assert f"), which goes by the clock of each process, by `{by}`" in summary(report)
    assert "Each rank reads a clock of its own." in advice(report)


@pytest.mark.parametrize(
    ("test", "clock"),
    [
        ("not timer.expired()", "self.rounds"),
        ("more() and not timer.expired()", CLOCK),
        ("not timer.elapsed()", CLOCK),
        ("not timer.expired", CLOCK),
        ("not other.over()", CLOCK),
        ("step < num_steps and not timer.expired()", f"{CLOCK}\nnum_steps = len(loader)"),
        ("step < args.max_steps and not timer.expired()", f"{CLOCK}\nargs.max_steps = args.epochs * len(loader)"),
        ("not timer.elapsed", f"agree({CLOCK} > 9)"),
    ],
)
def test_method_that_shows_no_clock_or_beside_another_condition_is_not_said_to_go_by_one(
    test: str, clock: str, run: Path
) -> None:
    """The look-alikes: a count, another part that may have ended it, a name that is no such call."""
    report = reported(run, TIMERS.format(test=test, clock=clock), [("fit", 3)], [("fit", 4)], 3)
    assert "clock" not in summary(report) + advice(report)


@pytest.mark.parametrize(
    ("branches", "where"),
    [
        ("if best:\n            pass\n        else:\n            self.stop = True", "in the else of `if best:`"),
        ("if late:\n            self.stop = True", "below `if late:`"),
    ],
)
def test_branch_that_sets_the_flag_is_named(branches: str, where: str, run: Path) -> None:
    """Also where that is an `else`."""
    source = STOPS.format(**{**STOP, "head": "while True:"}).replace("self.stop = True", branches)
    said = summary(reported(run, source, [("fit", 3)], [("fit", 6)], 3))
    assert f"sets {where}." in said


@pytest.mark.parametrize(
    ("parts", "rounds"),
    [
        ({}, 1),  # too few calls to know that both are in the same round
        ({"head": "for n in batches:"}, 3),
        ({"test": "if n > 5: break\n        if control.stop:"}, 3),
        ({"head": "try:\n     for n in range(100):", "more": ""}, 3),
    ],
)
def test_loop_that_a_rank_may_have_left_otherwise_is_not_in_the_headline(
    parts: dict[str, str], rounds: int, run: Path
) -> None:
    """Other rounds, another `break`, an exception that is caught."""
    source = STOPS.format(**{**STOP, **parts})
    line, behind = 3, 6
    if "try" in source:
        source = source.replace("    save()", "    except KeyboardInterrupt:\n        pass\n    save()")
        line, behind = 4, 9
    report = reported(run, source, [("fit", line)], [("fit", behind)], rounds)
    assert "had left" not in summary(report)


TRY = """def fit(batches):
    for batch in batches:
        step(batch)
        try:
            validate(batch)
        except Exception as error:
            {0}
"""


@pytest.mark.parametrize(("handler", "goes_on"), [("log(error)", True), ("raise", False), ("sys.exit(1)", False)])
def test_except_that_goes_on_may_have_hidden_an_error_of_the_other_rank(handler: str, goes_on: bool, run: Path) -> None:
    """Rank 0 is in the `try`, rank 1 in the next round. The look-alikes end the rank."""
    said = parted(run, TRY.format(handler), [("fit", 5)], [("fit", 3)])
    assert ("program.py:5 in fit is in a `try` whose `except` (line 6) goes on" in said) == goes_on


def test_try_around_both_lines_hides_nothing(run: Path) -> None:
    """An error there would have kept both ranks from their lines."""
    source = "def fit():\n    try:\n        first()\n        second()\n    except ValueError:\n        pass\n"
    assert "goes on" not in parted(run, source, [("fit", 3)], [("fit", 4)])


INNER = """def fit(batches):
    for batch in batches:
        loss = losses(batch)
        reduce(loss)

def losses(batch):
    {0}
        {1}
    gather(batch)
"""


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (
            "if not batch:",
            "program.py:9 in losses comes after `if not batch:` (line 7, which leaves), and rank 1 passed",
        ),
        ("if random.random() < 0.1:", "it draws from a generator of each rank's own"),
    ],
)
def test_branch_below_the_line_at_which_ranks_parted_is_named(test: str, words: str, run: Path) -> None:
    """One rank returned early from what the other one is in."""
    assert words in parted(run, INNER.format(test, "return 0"), [("losses", 9), ("fit", 3)], [("fit", 4)])


@pytest.mark.parametrize("test", ["len(batch) == 0", "batch.numel() == 0", "not len(batch)", "batch.shape[0] < 1"])
def test_rank_with_nothing_is_to_take_part(test: str, run: Path) -> None:
    """Nobody can decide that for all: the others have something."""
    said = parted(run, INNER.format(f"if {test}:", "return 0"), [("losses", 9), ("fit", 3)], [("fit", 4)])
    assert "Let it take part, too, with an empty or neutral tensor" in said


@pytest.mark.parametrize("test", ["len(batch) == 8", "done", "batch.step == 0"])
def test_other_conditions_are_decided_by_one_rank(test: str, run: Path) -> None:
    """The look-alikes: no question whether there is anything."""
    said = parted(run, INNER.format(f"if {test}:", "return 0"), [("losses", 9), ("fit", 3)], [("fit", 4)])
    assert "let one rank decide and broadcast it" in said and "neutral" not in said


def test_branch_that_does_not_leave_decides_nothing(run: Path) -> None:
    """The look-alike: its body goes on to the same call."""
    said = parted(run, INNER.format("if not batch:", "batch = None"), [("losses", 9), ("fit", 3)], [("fit", 4)])
    assert "passed it by" not in said


HANDLER = """def save(number, frame):
    barrier()

def fit():
    signal.signal(signal.SIGUSR1, save)
    for step in range(9):
        {0}
        reduce()
"""


@pytest.mark.parametrize(("line", "is_handler"), [("sleep(1)", True), ("save(0, None)", False)])
def test_handler_of_a_signal_is_told_by_the_line_that_does_not_call_it(line: str, is_handler: bool, run: Path) -> None:
    """The interpreter called it between two lines; the look-alike is a plain call."""
    said = parted(run, HANDLER.format(line), [("save", 2), ("fit", 7)], [("fit", 8)])
    assert said.startswith("Rank 0 was in save(), a signal's handler (line 5)") == is_handler


PAIR = """def load(rank):
    if rank != 0:
        barrier()
    read()
    if rank == 0:
        {0}

def main(rank):
    if rank == 0:
        load(rank)
    train()
"""


@pytest.mark.parametrize(("call_of_0", "outer"), [("barrier()", True), ("gather()", False)])
def test_branch_whose_counterpart_calls_the_same_is_no_reason(call_of_0: str, outer: bool, run: Path) -> None:
    """`if rank != 0: barrier()`, then `if rank == 0: barrier()`: all ranks call it; the branch around both decides."""
    said = parted(run, PAIR.format(call_of_0), [("load", 6), ("main", 10)], [("main", 11)])
    line, function, test = (10, "main", 9) if outer else (6, "load", 5)
    assert said.startswith(f"program.py:{line} in {function} is below `if rank == 0:` (line {test})")


def test_ranks_of_other_programs_have_no_place_where_they_parted(run: Path) -> None:
    """Nothing is compared that is not the same function."""
    source = "def one():\n    for x in y:\n        step()\n    end()\n\ndef two():\n    end()\n"
    assert "behind the loop" not in parted(run, source, [("one", 3)], [("two", 7)])


def messages(run: Path, sent: int, source: str = "def run(n):\n    pass\n    exchange(n)\n") -> Report:
    """Rank 0 waits for a third message of rank 1, which has sent some, and is in a collective."""
    program = program_in(run, source)
    job = Ranks(2)
    job.everybody(DONE)
    for rank, op in ((0, "recv_"), (1, "send")):
        job.calls(rank, *(call(op, peer=1 - rank, tag=0, flags=1, line=44) for _ in range(2 if rank == 0 else sent)))
    job.calls(0, call("recv_", state="failed", peer=1, tag=0, flags=1, line=44), first=3)
    job.calls(1, call(state="failed", line=50), first=2)
    for rank, line in ((0, 44), (1, 50)):
        stack = [IN_TORCH, ("step", SCRIPT, line), ("run", str(program), 3)]
        job.boxes[rank].at(7000 + rank).exception("RuntimeError", TIME_OUT, stack).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


def test_message_that_was_never_sent_is_counted_on_both_sides(run: Path) -> None:
    """Three receives, two sends."""
    report = messages(run, 2)
    assert report.verdict is not None and "message 3, rank 1 had sent 2" in (report.verdict.summary or "")
    assert advice(report).startswith(
        "Rank 0 was at message 3 from rank 1, which had sent 2, the last one at train.py:44"
    )


@pytest.mark.parametrize("test", ["rank == 0", "ready"])
def test_what_depends_on_the_rank_before_a_message_is_named(test: str, run: Path) -> None:
    """An argument of the call, chosen by the rank; the look-alike is chosen by something else."""
    source = f"def run(n):\n    sends = [n] if {test} else []\n    exchange(sends)\n"
    assert ("`sends` is chosen by the rank at line 2" in advice(messages(run, 2, source))) == ("rank" in test)


def test_messages_of_equal_number_are_not_counted(run: Path) -> None:
    """The look-alike: rank 1 has sent the third one, too."""
    report = messages(run, 3)
    assert "rank 1 had sent" not in str([finding.summary for finding in report.findings or ()])


SKIPS = """\
def feed(batches):
    for batch in batches:
        if {0}:
            {1}
        send(batch)
"""


@pytest.mark.parametrize("leaves", ["continue", "log(batch)"])
def test_branch_that_leaves_out_a_message_is_named(leaves: str, monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    """Before the line of the last one that was sent, in its loop; the look-alike goes on to send."""
    frame = PythonFrame("feed", str(run / "program.py"), 5)
    monkeypatch.setattr("pytracer.analyze.collectives.messages.place_of", lambda _: frame)
    said = advice(messages(run, 2, SKIPS.format("not len(batch)", leaves)))
    assert ("which is not reached after `if not len(batch)` (line 3, which leaves)" in said) == (leaves == "continue")


def came(run: Path, at: float, error: str = TIME_OUT) -> Report:
    """Rank 0 gave up an all_reduce after 4.9 s by this error; rank 1 called the same one `at` that many ms."""
    job = Ranks(2)
    job.everybody(DONE)
    begun = job.boxes[0].at(100).now
    job.calls(0, call(state="failed", ended_ns=begun + 4900 * MS, line=44), first=2)
    job.boxes[1].at(at)
    job.calls(1, call(state="failed", line=44), first=2)
    job.raised(0, error, at=7000)
    job.raised(1, CLOSED, at=7001)
    return build_report(job.job(run))


def test_rank_that_came_when_the_others_had_given_up_is_the_verdict(run: Path) -> None:
    """Two milliseconds later: it may have waited for what the first one held."""
    report = came(run, 5002)
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence, report.verdict.rank) == ("missing-rank", "likely", 1)
    said = "Rank 1 came to all_reduce (collective 2 of the default group) at train.py:44 in step 4.902 s after rank 0"
    assert (report.verdict.summary or "").startswith(said)


@pytest.mark.parametrize(("at", "error"), [(2000, TIME_OUT), (5002, CLOSED)])
def test_rank_that_came_in_time_or_after_a_lost_connection_is_not_late(at: float, error: str, run: Path) -> None:
    """The look-alikes: both waited; or the first one did not give up, it lost a peer."""
    assert "collective-late-rank" not in [finding.id for finding in came(run, at, error).findings or ()]


ANSWERS = """def stage(n):
    for step in range(n):
        h = receive()
        if not finite(h):
            {0}
        answer(h)
"""


def answers(run: Path, ops: Sequence[str], leaves: str = "continue") -> str:
    """Rank 1 takes turns with rank 0 up to these calls, the last of which hangs; rank 0 waits for an answer."""
    program = program_in(run, ANSWERS.format(leaves))
    job = Ranks(2)
    job.everybody(DONE)
    counts = {"send": 0, "recv_": 0}
    for number, op in enumerate(ops):
        counts[op] += 1
        state = "failed" if number == len(ops) - 1 else "completed"
        box = job.boxes[1]
        line = ("stage", str(program), 3 if op == "recv_" else 6)
        by = box.site((op, f"{TORCH}/distributed/distributed_c10d.py", 2900), line)
        message: dict[str, Any] = {"peer": 0, "tag": 0, "flags": 1, "sizes": [4], "nbytes": 16}
        box.collective(op, group=job.groups[1]["0"], by=by, state=state, sequence_nr=counts[op], **message)
    for number in range(1, counts["send"] + 2):
        hangs = "failed" if number > counts["send"] else "completed"
        job.calls(0, call("send", peer=1, tag=0, flags=1), first=number)
        job.calls(0, call("recv_", peer=1, tag=0, flags=1, state=hangs), first=number)
    for rank in (0, 1):
        job.raised(rank, at=7000 + rank)
    return advice(build_report(job.job(run)))


def test_message_without_answer_is_found_where_ranks_took_turns(run: Path) -> None:
    """With the branch that left the answer out."""
    said = answers(run, ["recv_", "send", "recv_", "send", "recv_", "recv_"])
    assert said.startswith(
        "Rank 1 answered each message of rank 0 at program.py:6 in stage, but not number 3: it went on"
    )
    assert "see whether line 4 (`if not finite(h):`) left it out" in said


def test_branch_that_does_not_leave_is_not_said_to_leave_it_out(run: Path) -> None:
    """The look-alike."""
    said = answers(run, ["recv_", "send", "recv_", "send", "recv_", "recv_"], "h = zeros()")
    assert "but not number 3: it went on to receive the next one. Answer in every round" in said


def test_ranks_that_take_no_turns_are_not_said_to_owe_an_answer(run: Path) -> None:
    """The look-alike: two messages for one answer, in each round."""
    said = answers(run, ["recv_", "recv_", "send", "recv_", "recv_", "send", "recv_"])
    assert "answered each message" not in said


PATIENCE = """def fit(batches):
    for epoch in range(40):
        for batch in batches:
            step(batch)
        {0}
            {1}
def main():
    fit(load())
    gather()
"""


@pytest.mark.parametrize(("way", "named"), [("break", True), ("print(epoch)", False)])
def test_loop_of_a_function_that_one_rank_left_is_named_with_what_ends_it(way: str, named: bool, run: Path) -> None:
    """The other one is behind the call of the function; the look-alike has nothing that ends the loop."""
    source = PATIENCE.format("if stopper.done():", way)
    said = parted(run, source, [("fit", 4), ("main", 8)], [("main", 9)])
    assert ("See whether line 5 (`if stopper.done():`), which ends it, came out differently" in said) == named
    assert ("Rank 1 was behind the loop of line 2" in said) == named


def test_ranks_in_two_rounds_of_the_same_loop_have_left_no_function(run: Path) -> None:
    """The look-alike: the one that is further down may be a round behind."""
    source = PATIENCE.format("if stopper.done():", "break").replace("def main():\n", "def main():\n  while True:\n")
    said = parted(run, source, [("fit", 4), ("main", 9)], [("main", 10)])
    assert "behind the loop" not in said


def test_first_message_that_a_rank_never_sent_is_why_the_others_wait(run: Path) -> None:
    """Of a ring: rank 0 waits for its first from rank 2; the others have had one. In the look-alike, all have."""
    for closed in (False, True):
        job = Ranks(3)
        job.everybody(DONE)
        sent: list[tuple[int, int]] = [(0, 1), (1, 2)] + ([(2, 0)] if closed else [])
        for rank, peer in sent:
            job.calls(rank, call("send", peer=peer, tag=0, flags=1))
        for rank in range(3):
            had = 1 if (rank - 1) % 3 != 2 or closed else 0
            receives = [call("recv_", peer=(rank - 1) % 3, tag=0, flags=1, state="completed") for _ in range(had)]
            job.calls(rank, *receives, call("recv_", peer=(rank - 1) % 3, tag=0, flags=1, state="failed"))
            job.raised(rank, at=7000 + rank)
        said = advice(build_report(job.job(run / str(closed))))
        assert ("for its first message from rank 2, which has never sent one to it" in said) != closed


def test_rank_that_left_before_its_first_collective_is_told_by_the_branch(run: Path) -> None:
    """A list that is a part of another one may be empty on a rank; a flag may not be."""
    for made, words in (("files[rank::2]", "a rank with nothing in it"), ("ready()", "came out differently there")):
        program = program_in(
            run, f"def count(files):\n    mine = {made}\n    if not mine:\n        return\n    total()\n"
        )
        job = Ranks(2)
        job.calls(0, call(state="failed", line=44))
        stack = [IN_TORCH, ("step", SCRIPT, 44), ("count", str(program), 5)]
        job.boxes[0].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
        job.endings[0] = {"exit_code": 1}
        job.done(1)
        said = advice(build_report(job.job(run)))
        assert (
            "program.py:5 in count comes after `if not mine:` (line 3, which leaves), and rank 1 never called" in said
        )
        assert words in said


FILES = """def part(files):
    return {0}
def fit(files):
    data = Shards(part(files))
    loader = {1}
    for batch in loader:
        step(batch)
    save()
"""


@pytest.mark.parametrize(
    ("part", "loader", "named"),
    [
        ("files[dist.get_rank()::2]", "DataLoader(data, shuffle=True)", True),
        ("files[::2]", "DataLoader(data, shuffle=True)", False),
        ("files[::2]", "DataLoader(data, sampler=DistributedSampler(data, rank=rank))", False),
        ("files[::2]", "tqdm(DataLoader(data), disable=rank != 0)", False),
        ("files[::2]", "DataLoader(data)\n    if rank == 0:\n        loader = tqdm(loader)", False),
    ],
)
def test_rounds_are_followed_to_the_part_of_the_rank(part: str, loader: str, named: bool, run: Path) -> None:
    """Through a loader, its dataset and a function; a sampler for all ranks gives them as many."""
    source = FILES.format(part, loader)
    line = source.splitlines().index("        step(batch)") + 1
    said = parted(run, source, [("fit", line)], [("fit", line + 1)])
    assert ("may depend on the rank (line 2: `files[dist" in said) == named
    assert ("depend on the rank" in said) == named


EARLY = """class Shards:
    def __init__(self, files, rank):
        self.files, self.rank = files, rank
    def __iter__(self):
        return iter({0})
def fit(files, rank):
    loader = DataLoader(Shards(files, rank))
    for epoch in range(3):
        for batch in loader:
            step(batch)
        {1}
            {2}
"""


def left(run: Path, shard: str, test: str, way: str) -> Report:
    """Rank 1 has ended well, and rank 0 is in the loop."""
    program = program_in(run, EARLY.format(shard, test, way))
    job = Ranks(2)
    job.everybody(call(line=44))
    job.calls(0, call(state="failed", line=44), first=2)
    stack = [IN_TORCH, ("step", SCRIPT, 44), ("fit", str(program), 10)]
    job.boxes[0].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.done(1)
    return build_report(job.job(run))


def test_loop_that_a_finished_rank_may_have_left_is_named(run: Path) -> None:
    """By what its rounds depend on."""
    report = left(run, "self.files[self.rank :: 2]", "if epoch:", "print(epoch)")
    assert "the rounds of the loop of line 9 may depend on the rank (line 5: `self.files[" in summary(report)
    assert "Give all ranks as many rounds" in advice(report)


def test_break_of_an_outer_loop_is_named_where_the_inner_one_is_even(run: Path) -> None:
    """What ends it: each rank decides that for itself."""
    report = left(run, "self.files", "if stop(epoch):", "break")
    assert "rank 1 may have left the loop of line 8 by line 11 (`if stop(epoch):`)" in summary(report)
    assert "all_reduce() the flag (MAX), so that all ranks stop in the same round" in advice(report)


@pytest.mark.parametrize("test", ["if rank == 1:", "if not rank != 1:"])
def test_end_of_a_loop_that_the_finished_rank_alone_asks_for_is_known(test: str, run: Path) -> None:
    """Below a branch on the rank: no other rank evaluates that condition, so that it came out on none of them."""
    report = left(run, "self.files", f"{test}\n            if stop(epoch):", "    break")
    assert "by line 12 (`if stop(epoch):`), to which it comes alone (below `" in summary(report)
    assert advice(report).startswith(f"Line 12 (`if stop(epoch):`) stands below `{test}`, line 11: rank 1 alone asks")
    assert "came out differently" not in advice(report)


@pytest.mark.parametrize(
    ("test", "way"),
    [
        ("if rank == 0:\n            if stop(epoch):", "    break"),
        ("if rank != 1:\n            if stop(epoch):", "    break"),
        ("if rank == 0 and stop(epoch):", "break"),
    ],
    ids=["below", "below all but one", "itself"],
)
def test_end_of_a_loop_that_only_other_ranks_ask_for_is_not_named(test: str, way: str, run: Path) -> None:
    """The look-alike: the rank that finished never comes there, and left in another way."""
    report = left(run, "self.files", test, way)
    assert "stop(epoch)" not in summary(report) + advice(report)


def test_clock_by_which_a_finished_rank_may_have_left_is_named(run: Path) -> None:
    """It is each rank's own."""
    report = left(run, "self.files", "if time.time() > end:", "break")
    assert "by line 11 (`if time.time() > end:`), which goes by the clock of each process" in summary(report)
    assert "Each rank reads a clock of its own." in advice(report)


def test_loops_that_all_ranks_leave_alike_are_not(run: Path) -> None:
    """The look-alike: what all advice says."""
    report = left(run, "self.files", "if epoch:", "print(epoch)")
    assert "loop of line" not in summary(report)
    assert advice(report).startswith("Count the rounds on all ranks")


BATCHES = """def fit(data):
    for batch in {0}:
        {1}
            {2}
        step(batch)
"""


@pytest.mark.parametrize(
    ("batches", "test", "way", "headline", "next_"),
    [
        (
            "read(data, rank)",
            "if bad(batch):",
            "continue",
            "rank 1 may have left out a round of the loop of line 2 by line 3 (`if bad(batch):`), or had fewer rounds.",
            "all_reduce() the flag). If not: the rounds of the loop of line 2 may depend on the rank",
        ),
        (
            "data",
            "if bad(batch):",
            "continue",
            "rank 1 may have left out a round of the loop of line 2 by line 3",
            "all_reduce() the flag). If not: give all ranks as many rounds",
        ),
        ("data[rank::2]", "if bad(batch):", "continue", ": the rounds of the loop of line 2", "The rounds"),
        ("data", "if bad(batch):", "print()", "Rank 1 finished", "Count the rounds on all ranks"),
        (
            "range(9)",
            "if bad(batch):",
            "continue",
            "by line 3 (`if bad(batch):`).",
            "skip it together (all_reduce() the flag).",
        ),
    ],
)
def test_round_that_a_finished_rank_may_have_left_out_is_told(
    batches: str, test: str, way: str, headline: str, next_: str, run: Path
) -> None:
    """Beside what its rounds depend on; not where that is a split, nor where nothing leaves it out."""
    program = program_in(run, BATCHES.format(batches, test, way))
    job = Ranks(2)
    job.everybody(call(line=44))
    job.calls(0, call(state="failed", line=44), first=2)
    stack = [IN_TORCH, ("step", SCRIPT, 44), ("fit", str(program), 5)]
    job.boxes[0].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.done(1)
    report = build_report(job.job(run))
    assert headline in summary(report) and next_ in advice(report)
    assert ("left out" in summary(report)) == (way == "continue" and batches != "data[rank::2]")


def test_rounds_that_depend_on_the_rank_are_named_with_the_line(run: Path) -> None:
    """Of a loop that one rank is behind."""
    source = LOOP.format("if bad(batch):", "print(batch)").replace("in batches", "in batches[rank::2]")
    said = parted(run, source, [("fit", 3)], [("fit", 6)])
    assert "Its number of rounds may depend on the rank (line 2: `batches[rank::2]`)" in said


@pytest.mark.parametrize(("made", "empty"), [("[f(x) for x in own]", True), ("settings(own)", False)])
def test_rank_without_anything_leaves_by_an_empty_list(made: str, empty: bool, run: Path) -> None:
    """The look-alike's value may be anything."""
    source = f"def fit(own):\n    found = {made}\n    if not found:\n        return\n    step(found)\ndef main(own):\n"
    source += "    fit(own)\n    save()\n"
    said = parted(run, source, [("fit", 5), ("main", 7)], [("main", 8)])
    assert ("a rank with nothing in it leaves out what the others wait for" in said) == empty


@pytest.mark.parametrize("ended_at", [60_000, 8_000])
def test_ranks_at_different_calls_that_stood_there_wait_for_each_other(ended_at: float, run: Path) -> None:
    """Where both calls were open for long; the look-alike: a job that was ended before that can be known."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started", line=44), first=2)
    job.calls(1, call("broadcast_", root=0, state="started", line=48), first=2)
    job.terminated(0, 1)
    found = finding(build_report(job.job(run, ended_at=ended_at)), "collective-mismatch")
    assert found is not None
    said = [item for item in found.evidence or [] if "the ranks wait for each other" in item]
    assert bool(said) == (ended_at > 50_000), found.evidence
