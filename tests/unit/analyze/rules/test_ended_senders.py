"""python-exception: a tensor of a queue or pipe whose sender had ended before it was received."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import parent
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
ASKS: list[Frame] = [
    ("Client", f"{LIB}/connection.py", 518),
    ("DupFd.detach", f"{LIB}/resource_sharer.py", 57),
    ("rebuild_storage_fd", f"{s.TORCH}/multiprocessing/reductions.py", 538),
    ("Queue.get", f"{LIB}/queues.py", 122),
]
OF_CLASS = """class Worker(mp.Process):
    def __init__(self, number, out, done):
        self.number, self.done = number, done
        self.gradients = out
    def run(self):
        self.gradients.put([p.grad for p in self.model.parameters()])
        self.done.put(1.0)
def main():
    queue, results = mp.Queue(), mp.Queue()
    workers = [Worker(i, queue, results) for i in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(timeout=10)
    return queue.get(timeout=20)
"""
OF_PIPE = """class Loader:
    def __init__(self):
        self.conn, child = mp.Pipe()
        self.proc = mp.Process(target=produce, args=(child, 4))
        self.proc.start()
    def stop(self):
        self.proc.join()
    def batch(self):
        return self.conn.recv()
def produce(pipe, n):
    pipe.send(torch.ones(n))
def main():
    loader = Loader()
    loader.stop()
    return loader.batch()
"""
POLLED = """def encode(rank, out):
    out.put(torch.ones(3))
def main(features):
    procs = [ctx.Process(target=encode, args=(r, features)) for r in range(2)]
    while any(p.is_alive() for p in procs):
        time.sleep(1)
    return features.get()
"""
SPAWNED = """def train(rank, world, results):
    results.put(torch.ones(3))
def launch(world, queue):
    mp.spawn(train, args=(world, queue), nprocs=world)
def main(queue):
    launch(2, queue)
    return queue.get()
"""
SLOW = """def sampler(q):
    q.put(torch.zeros(3))
def main(q):
    p = mp.Process(target=sampler, args=(q,))
    p.start()
    time.sleep(8)
    return q.get()
"""


def lost(
    run: Path, source: str, *lines: int, ends: tuple[int | None, ...] = (1_900, 1_957), asks: bool = True
) -> Report:
    """Children that end at these times, of a parent that receives at the first of these lines at 2.000 s."""
    script = str(s.program_in(run, source))
    children = []
    for number, end in enumerate(ends, 1):
        child = Box(pid=101 + number, ppid=101).at(100).doing("name", f"multiprocessing process Worker-{number}")
        children.append(child.at(end).exit(0) if end is not None else child)
    stack = [*(ASKS if asks else ()), *(("main", script, line) for line in lines)]
    main = parent().at(2_000).exception("FileNotFoundError", "[Errno 2] No such file or directory", stack)
    return build_report(s.load(run, main.at(2_600).exit(1), *children))


def test_order_of_both_ends_is_in_the_headline(run: Path) -> None:
    """Which processes had ended, where they had put the tensor, which line waited for that before the get."""
    report = lost(run, OF_CLASS, 15)
    assert verdict(report) == ("python-exception", "certain")
    assert (
        "the file is a socket of the process that sent the tensor; multiprocessing process Worker-2 (pid 103) and "
        "multiprocessing process Worker-1 (pid 102), one of which sent it at line 6 (`self.gradients.put()`), had "
        "ended with status 0 before: line 14 waits for that before line 15 receives." in summary(report)
    )
    assert "Join (lines 13 and 14) behind the last `queue.get()`, and let the senders wait for an Event" in advice(
        report
    )


def test_end_of_a_sender_is_not_said_to_need_the_get(run: Path) -> None:
    """Both had ended unread, as the headline says: only what does not fit into the pipe keeps a sender from its end."""
    said = advice(lost(run, OF_CLASS, 15))
    assert "does not end before" not in said
    assert "then this order is right as well, as long as all that is sent fits into the pipe." in said


@pytest.mark.parametrize(
    ("source", "lines", "words", "next_words"),
    [
        (OF_PIPE, (9, 15), "at line 11 (`pipe.send()`), had ended", "Join (line 7) behind the last `self.conn.recv()`"),
        (POLLED, (7,), "line 5 waits for that before line 7", "Wait for their end (line 5) behind the last"),
        (SPAWNED, (7,), "line 4 waits for that before line 7", "Pass `join=False` at line 4"),
        (SLOW, (7,), "at line 2 (`q.put()`), had ended", "wait for an Event behind line 2 (`q.put()`)"),
    ],
    ids=["pipe of an object", "polled", "torch's spawn", "nobody waits"],
)
def test_other_ways_to_wait(source: str, lines: tuple[int, ...], words: str, next_words: str, run: Path) -> None:
    report = lost(run, source, *lines)
    assert words in summary(report)
    assert next_words in advice(report)


@pytest.mark.parametrize(
    ("ends", "asks"), [((1_900, None), True), ((1_900, 2_100), True), ((1_900, 1_957), False)],
    ids=["one still runs", "one ends later", "a file of the program"],
)  # fmt: skip
def test_sender_that_may_still_run_is_not_named(ends: tuple[int | None, ...], asks: bool, run: Path) -> None:
    """And the file that is not found may be one of the program."""
    report = lost(run, OF_CLASS, 15, ends=ends, asks=asks)
    assert "sent a tensor at" not in summary(report)
    assert "the sender's socket" not in advice(report)


PLAYED = """def play(number, n, q):
    for _ in range(n):
        q.put((number, play_game()))
    q.put({0})
def main(q, workers):
    for w in range({1}):
        p = ctx.Process(target=play, args=({2}, 8, q))
        p.start()
    time.sleep(8)
    return q.get()
"""


@pytest.mark.parametrize(
    ("last", "given", "both"),
    [
        ("(number, None)", "w", False),
        ("{'rank': number, 'games': len(games), 'value': value.item()}", "w", False),
        ("f'{number} is done'", "values[w]", False),
        ("(number, None)", "values[w]", True),
        ("(number, total)", "w", True),
        ("[value for value in values]", "w", True),
    ],
    ids=["None", "numbers", "text", "a parameter that may be a tensor", "another variable", "a list"],
)
def test_line_that_puts_no_tensor_has_not_sent_it(last: str, given: str, both: bool, run: Path) -> None:
    """But behind it the sender has put all, so that it may wait there."""
    report = lost(run, PLAYED.format(last, "workers", given), 10)
    at = "line 3 (`q.put()`) or line 4 (`q.put()`)" if both else "line 3 (`q.put()`)"
    assert f", one of which sent it at {at}, had ended" in summary(report)
    assert advice(report).startswith("Let the sender wait for an Event behind line 4 (`q.put()`), and set it")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("    for x in data:\n        q.put(x)\n", "behind the loop of line 2"),
        ("    while True:\n        q.put(x)\n        if x.done(): break\n", "before play() returns"),
        ("    if data:\n        q.put(x)\n    else:\n        q.put(-x)\n", "before play() returns"),
        ("    def add(x):\n        q.put(x)\n    add(data)\n", "behind its last call at line 3 (`q.put()`)"),
        ("    with lock:\n        q.put(x)\n", "before play() returns"),
    ],
    ids=["loop", "endless loop", "one of two branches", "function inside", "block"],
)
def test_sender_waits_where_it_has_put_all(body: str, where: str, run: Path) -> None:
    """In the loop it would never get to the rest."""
    main = "def main(q):\n    p = mp.Process(target=play, args=(data, q))\n    p.start()\n    return q.get()\n"
    source = f"def play(data, q):\n{body}{main}"
    report = lost(run, source, len(source.splitlines()))
    assert f"Let the sender wait for an Event {where}, and set it behind the last `q.get()`" in advice(report)


def test_list_that_is_filled_later_may_hold_the_tensor(run: Path) -> None:
    source = SLOW.replace("    q.put(torch", "    out = []\n    out.append(net())\n    q.put(out)\n    q.put(torch")
    assert "sent it at line 4 (`q.put()`) or line 5 (`q.put()`), had ended" in summary(lost(run, source, 10))
