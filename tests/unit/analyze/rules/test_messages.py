"""standstill: waits at the pipes of multiprocessing, who should have sent, and what a forked child was left with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze import engine
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, in_native, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
GOMP = f"{s.TORCH}/lib/libgomp.so.1"
IN_OPENMP: list[tuple[str, int]] = [(GOMP, 0x1000), (s.TORCH_CPU, 0x9900)]
AT_WORK: list[tuple[str, int]] = [(s.TORCH_CPU, 0x9900)]
READ: list[Frame] = [
    ("Connection._recv", f"{LIB}/connection.py", 395),
    ("Connection._recv_bytes", f"{LIB}/connection.py", 430),
    ("_ConnectionBase.recv", f"{LIB}/connection.py", 250),
]
WRITTEN: list[Frame] = [
    ("Connection._send", f"{LIB}/connection.py", 384),
    ("Connection._send_bytes", f"{LIB}/connection.py", 411),
    ("_ConnectionBase.send", f"{LIB}/connection.py", 206),
]
JOIN: list[Frame] = [
    ("Popen.poll", f"{LIB}/popen_fork.py", 27),
    ("BaseProcess.join", f"{LIB}/process.py", 149),
    ("main", s.SCRIPT, 12),
]
FORKED: list[Frame] = [
    ("BaseProcess.run", f"{LIB}/process.py", 108),
    ("Popen._launch", f"{LIB}/popen_fork.py", 71),
    ("Process._Popen", f"{LIB}/context.py", 224),
    ("BaseProcess.start", f"{LIB}/process.py", 121),
]
PROGRAM = """import multiprocessing
def serve(conn):
    conn.send(conn.recv())
def main():
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=serve, args=(theirs,))
    worker.start()
    item = ours.recv()
"""


def asks(stack: Sequence[Frame] = READ, line: int = 12, file: str = s.SCRIPT) -> list[Frame]:
    return [*stack, ("main", file, line)]


def serves(line: int = 30) -> list[Frame]:
    return [*READ, ("serve", s.SCRIPT, line)]


def child(pid: int = 102) -> Box:
    """A copy of its parent: it has an entry from before its own start."""
    return Box(pid=pid, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")


def in_openmp(box: Box, line: int = 6) -> Box:
    return stopped(box, [("load", s.SCRIPT, line), *FORKED, ("main", s.SCRIPT, 20)], IN_OPENMP)


def test_child_in_a_dead_openmp_team_is_what_its_reader_waits_for(run: Path) -> None:
    """The parent waits in recv() for a child that was forked after OpenMP."""
    report = ended(run, stopped(parent(), asks()), in_openmp(child()))
    assert verdict(report) == ("hang", "likely")
    assert report.verdict is not None and report.verdict.pid == 102
    assert "before it forked at train.py:20 in main; its parent (pid 101) waited at" in summary(report)
    assert "waited for a message from the other end of a connection at train.py:12 in main" in evidence(report)


def test_line_that_forks_is_told_how_to_spawn(run: Path) -> None:
    script = str(s.program_in(run, PROGRAM))
    stuck = [("load", script, 3), *FORKED, ("main", script, 7)]
    report = ended(run, stopped(parent(), asks(line=8, file=script)), stopped(child(), stuck, IN_OPENMP))
    assert advice(report).startswith("Line 7 (`worker.start()`) forks it")
    assert '`multiprocessing.get_context("spawn").Process(...)` at line 6' in advice(report)


@pytest.mark.parametrize(
    ("imported", "named"),
    [("from multiprocessing import Process, Queue", True), ("from queue import Queue\nfrom os import fork", False)],
)
def test_queues_of_the_program_go_to_the_same_context(imported: str, named: bool, run: Path) -> None:
    """A spawned process refuses those of another one; a queue for threads is none."""
    program = f"{imported}\n\ndef main():\n    jobs = Queue()\n    worker.start()\n\ndef load():\n    torch.ones(9)\n"
    script = str(s.program_in(run, program))
    line = 1 + program[: program.index("    worker")].count("\n")
    stuck = [("load", script, line + 3), *FORKED, ("main", script, line)]
    report = ended(run, stopped(parent(), asks(line=line, file=script)), stopped(child(), stuck, IN_OPENMP))
    assert (f"and the Queue() of line {line - 1} by the same context" in advice(report)) == named


@pytest.mark.parametrize(
    ("before", "named"),
    [("    sample = features(0)\n", True), ("    if warm:\n        features(0)\n", False), ("    print(0)\n", False)],
    ids=["always", "perhaps", "another call"],
)
def test_parent_that_ran_the_same_function_before_the_fork(before: str, named: bool, run: Path) -> None:
    """None of its tensors is left: the line that called the function is where it used the threads."""
    begin = "def features(n):\n    return a.float()\ndef main():\n"
    program = f"{begin}{before}    p = Process(target=features)\n    p.start()\n"
    script = str(s.program_in(run, program))
    line = program.count("\n")
    stuck = [("features", script, 2), *FORKED, ("main", script, line)]
    report = ended(run, stopped(parent(), asks(line=line, file=script)), stopped(child(), stuck, IN_OPENMP))
    assert ("the OpenMP threads of the parent (used at program.py:4 in main) do not exist" in advice(report)) == named


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("x = a * b", True),
        ("x = torch.relu(a)", True),
        ("loss.backward()", True),
        ("x = torch.empty(9)", False),
        ("x = torch.from_numpy(a * 2)", False),
        ("x = nn.Linear(512, 512)", False),
    ],
)
def test_line_at_which_the_parent_used_openmp_computes_a_large_tensor(text: str, used: bool, run: Path) -> None:
    """What is allocated, or read from elsewhere, takes no threads; nor does what is small."""
    script = str(s.program_in(run, f"def small(a):\n    return a * 2\ndef mask(a, b, loss):\n    {text}\n"))
    box = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0")
    box.alloc(0x7F0000000000, 1 << 20, box.site(("mask", script, 4)))
    box.alloc(0x7F0001000000, 1 << 10, box.site(("small", script, 2))).at(100).mark("begin")
    report = ended(run, stopped(parent(), asks()), in_openmp(box))
    assert "its parent had used OpenMP threads before it forked at train.py:20 in main" in summary(report)
    assert ("the OpenMP threads of the parent (used at program.py:4 in mask) do not exist" in advice(report)) == used
    assert "program.py:2" not in advice(report)


DERIVED = """import multiprocessing as mp
class Sampler(mp.Process):
    def run(self):
        torch.ones(1 << 20)
def main():
    jobs = mp.Queue()
    sampler = Sampler()
    sampler.start()
    jobs.get()
"""


def test_class_derived_from_process_gets_another_base(run: Path) -> None:
    """get_context("spawn").Process(...) makes none of it."""
    script = str(s.program_in(run, DERIVED))
    stuck = [("Sampler.run", script, 4), *FORKED, ("main", script, 8)]
    report = ended(run, stopped(parent(), asks(line=9, file=script)), stopped(child(), stuck, IN_OPENMP))
    assert "call torch.set_num_threads(1) first in Sampler.run()" in advice(report)
    assert 'derive Sampler (line 2) from `multiprocessing.get_context("spawn").Process`' in advice(report)
    assert "and make the Queue() of line 6 by the same context" in advice(report)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (f"{LIB}/pool.py", "Pool(...)"),
        ("/usr/lib/python3.11/concurrent/futures/process.py", "mp_context="),
        (f"{s.TORCH}/utils/data/dataloader.py", "multiprocessing_context="),
    ],
)
def test_start_method_is_given_to_what_forks(file: str, words: str, run: Path) -> None:
    stuck: list[Frame] = [("load", s.SCRIPT, 6), *FORKED, ("__init__", file, 9), ("main", s.SCRIPT, 20)]
    report = ended(run, stopped(parent(), asks()), stopped(child(), stuck, IN_OPENMP))
    assert words in advice(report)


def test_forked_child_that_goes_on_in_openmp_is_at_work(run: Path) -> None:
    """The look-alike: its own team, which it uses until the end."""
    box = child()
    made = box.site(("load", s.SCRIPT, 6))
    for number in range(40):
        box.at(59_000 + number).mark("part").alloc(0x7F0000000000 + number * 4096, 4096, made)
    report = ended(run, stopped(parent(), asks()), in_openmp(box))
    assert verdict(report) == ("hang", "possible")
    assert "OpenMP" not in summary(report)
    assert "was at train.py:6 in load" in summary(report)


def test_both_ends_that_wait_for_each_other_are_named(run: Path) -> None:
    """A request that the other side does not answer."""
    report = ended(run, stopped(parent(), asks()), stopped(child(), serves()))
    assert verdict(report) == ("hang", "possible")
    assert report.verdict is not None and report.verdict.pid == 101
    assert "process 102 (train.py), waited for one itself at train.py:30 in serve" in summary(report)
    assert "compare the order of send() and recv()" in advice(report)


def test_idle_child_beside_one_at_work_is_not_the_cause(run: Path) -> None:
    """The look-alike: several environments, of which one computes the answer."""
    boxes = stopped(child(), serves()), stopped(child(103), [("step", s.SCRIPT, 40)], AT_WORK)
    report = ended(run, stopped(parent(), asks()), *boxes)
    assert report.verdict is not None and report.verdict.pid == 101
    assert "was at train.py:40 in step" in summary(report)


@pytest.mark.parametrize("first", [101, 102])
def test_child_that_serves_a_working_parent_is_idle(first: int, run: Path) -> None:
    """The look-alike: it waits for its next request, whichever of the two obeys the signal first."""
    boxes = stopped(parent(), [("train", s.SCRIPT, 50)], AT_WORK), stopped(child(), serves())
    report = ended(run, *(boxes if first == 101 else boxes[::-1]))
    assert verdict(report)[0] == "external-kill"


def test_idle_server_that_is_stopped_does_not_hang(run: Path) -> None:
    """The look-alike: no time limit ended it."""
    by = ["python", "supervisor.py"]
    assert verdict(ended(run, stopped(parent(), asks(), by=by), by=by))[0] == "external-kill"


def test_reader_whose_sender_has_ended_keeps_its_end_open(run: Path) -> None:
    """No EOFError comes while the reader has a copy of the other end."""
    report = ended(run, stopped(parent(), asks()), Box(pid=102, ppid=101).at(5_000).exit(0))
    assert verdict(report) == ("hang", "likely")
    assert "had ended with status 0, and no other child could send" in summary(report)
    assert "close() on the child's end right after start()" in advice(report)


def test_join_of_a_child_whose_message_is_not_read_is_the_parents_line(run: Path) -> None:
    """send() of more than a pipe holds, before the parent's recv()."""
    report = ended(run, stopped(parent(), JOIN), stopped(child(), asks(WRITTEN, 30)))
    assert verdict(report) == ("hang", "likely")
    assert "at train.py:12 in main, which cannot end before what it sends is received" in summary(report)


@pytest.mark.parametrize(
    "caller",
    [
        ("Pool._handle_results", f"{LIB}/pool.py", 579),
        ("BaseProxy._callmethod", f"{LIB}/managers.py", 822),
        ("_process_worker", "/usr/lib/python3.11/concurrent/futures/process.py", 249),
    ],
)
def test_pipes_of_pools_and_managers_are_theirs(caller: Frame, run: Path) -> None:
    """The look-alikes: a library's own pipe."""
    report = ended(run, stopped(parent(), [*READ, caller, ("main", s.SCRIPT, 12)]))
    assert "waited for a message" not in summary(report)


def test_connection_of_another_library_is_none(run: Path) -> None:
    """The look-alike: a class of the same name."""
    report = ended(run, stopped(parent(), [("Connection._recv", "/opt/lib/fleet/connection.py", 9), *asks([])]))
    assert "waited for a message" not in summary(report)


def quiet_in(run: Path, function: str) -> Report:
    """A process that recorded nothing for long; no wait is known."""
    box = Box(pid=101, ppid=90).versions(torch="2.13.0").at(1_000).step(1).at(1_020).step(2)
    box.alloc(0x7F0000000000, 4096, box.site(("main", s.SCRIPT, 9)))
    return in_native(run, stopped(box, [("main", s.SCRIPT, 12)]), native=function)


@pytest.mark.parametrize(
    ("function", "sure"), [("read", "likely"), ("__poll", "likely"), ("_PyEval_EvalFrameDefault", "certain")]
)
def test_limit_that_ended_a_blocked_process_is_not_certain_to_be_all(function: str, sure: str, run: Path) -> None:
    """The look-alike computes in Python, which records nothing. A read of a file waits for nobody."""
    report = quiet_in(run, function)
    assert verdict(report) == ("external-kill", sure)
    does = "was" if function == "read" else "waited"
    assert (f"it {does} in {function.strip('_')}(), called at train.py:12" in summary(report)) == (sure == "likely")


def pooled(run: Path, workers: int, program: str) -> Report:
    """A pool whose thread for results is missing."""
    script = str(s.program_in(run, program))
    rest = {5: [("Pool._handle_workers", f"{LIB}/pool.py", 522)], 6: [("Pool._handle_tasks", f"{LIB}/pool.py", 531)]}
    stack: list[Frame] = [
        ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
        ("IMapIterator.next", f"{LIB}/pool.py", 861),
        ("main", script, 6),
    ]
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=stack, other_python=rest, native=[(s.LIBC, 0x10)])
    return ended(run, box, *(Box(pid=110 + number, ppid=101).at(5_000).exit(0) for number in range(workers)))


POOLED = """import torch.multiprocessing as mp
def draw(seed):
    return torch.ones(seed)
def main():
    pool = mp.Pool(2, maxtasksperchild=1)
    for item in pool.imap(draw, range(9)):
        print(item)
"""


def test_pool_that_lost_its_results_names_what_the_task_returns(run: Path) -> None:
    report = pooled(run, 3, POOLED)
    assert verdict(report) == ("hang", "likely")
    assert "3 workers had ended with status 0 by then (`maxtasksperchild=1`, line 5)" in summary(report)
    assert "what `draw` returns at line 3 (`return torch.ones(seed)`)" in advice(report)
    assert "or leave out `maxtasksperchild=1` at line 5" in advice(report)


def test_pool_without_a_limit_of_tasks_names_none(run: Path) -> None:
    """The look-alike: its workers live on."""
    report = pooled(run, 0, POOLED.replace(", maxtasksperchild=1", ""))
    assert "maxtasksperchild" not in summary(report) + advice(report)
    assert "status 0" not in summary(report)


def busy_before(box: Box) -> Box:
    """It made many small tensors soon after its start; of the last ones no time is known."""
    made = box.at(200).mark("part").site(("load", s.SCRIPT, 6))
    for number in range(60):
        box.alloc(0x7F0000000000 + number * 4096, 4096, made)
    return box


@pytest.mark.parametrize(
    ("cpu", "seconds", "stands"), [(0.07, 50, True), (30.0, 50, False), (None, 50, False), (0, 4, False)]
)
def test_child_that_hardly_computed_stands_in_openmp(
    cpu: float | None, seconds: int, stands: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it recorded last has no time; its launcher saw that it used no processor. Else it may be at work."""
    seen = SeenProcess(102, 0, 0, seconds * 1_000_000_000, cpu_seconds=cpu)
    monkeypatch.setattr(engine, "_seen", lambda _, process: seen if process.snapshot.pid == 102 else None)
    report = ended(run, stopped(parent(), asks()), in_openmp(busy_before(child())))
    assert ("waited in the OpenMP runtime of a forked child" in summary(report)) == stands


def test_parent_has_the_line_that_used_openmp_where_the_tensor_was_freed(run: Path) -> None:
    """The child has only what was alive at the fork."""
    script = str(s.program_in(run, "def update(a):\n    x = a * 2\n"))
    box = parent().at(100).mark("begin")
    box.alloc(0x7F0000000000, 1 << 20, box.site(("update", script, 2)))
    report = ended(run, stopped(box, asks()), in_openmp(child()))
    assert "the OpenMP threads of the parent (used at program.py:2 in update) do not exist" in advice(report)
