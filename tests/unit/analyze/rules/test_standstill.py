"""standstill: what a process waited for when a time limit ended it, and what only looks like a wait."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.journal import HandledException
from pytracer.decode.types.snapshot import NativeFrame, PythonFrame, Snapshot
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import TORCH_PYTHON, advice, evidence, finding, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, in_native, parent, stopped
from tests.support.synth import Box, Frame

CORE = "/opt/pytracer/libpytracer_core.so"
GOMP = f"{s.TORCH}/lib/libgomp.so.1"
FILL: list[tuple[str, int]] = [(GOMP, 0x1000), (GOMP, 0x1010), (s.TORCH_CPU, 0x9900)]
FOO: list[Frame] = [("foo", s.SCRIPT, 6)]
JOIN: list[Frame] = [("Popen.poll", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 27), ("main", s.SCRIPT, 12)]
GET: list[Frame] = [("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), ("main", s.SCRIPT, 12)]


def forked(ppid: int = 101) -> Box:
    """A copy of its parent: it has an entry from before its own start."""
    return Box(pid=102, ppid=ppid, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")


def test_forked_child_that_waits_for_openmp_is_the_cause(run: Path) -> None:
    """Its parent waits for it; the time limit ended both."""
    report = ended(run, stopped(parent(), JOIN), stopped(forked(), FOO, FILL))
    assert verdict(report) == ("hang", "likely")
    assert summary(report).startswith(
        "Process 102 (train.py) waited in the OpenMP runtime of a forked child at train.py:6 in foo"
    )
    assert report.verdict is not None and report.verdict.pid == 102
    assert {item.pid: item.primary for item in report.processes or []}[101] is False


def test_openmp_in_a_process_of_its_own_is_work(run: Path) -> None:
    """The look-alike: no fork, so its threads exist; the main one is ready before them."""
    report = ended(run, stopped(parent(), FOO, FILL))
    assert verdict(report)[0] == "external-kill"


def test_parent_of_a_working_child_is_only_possibly_to_blame(run: Path) -> None:
    """The look-alike: the child computes; nobody but the time limit knows whether that was too long."""
    report = ended(run, stopped(parent(), JOIN), stopped(forked(), FOO, [(s.TORCH_CPU, 0x9900)]))
    assert verdict(report) == ("hang", "possible")
    assert "waited for a child process" in summary(report)


@pytest.mark.parametrize(
    ("at", "queue", "alone"),
    [
        (5_000, "multiprocessing/queues", True),
        (59_990, "multiprocessing/queues", False),  # it ended with the rest
        (5_000, "queue", False),  # a thread fills it
    ],
)
def test_queue_whose_writers_have_all_ended_waits_for_ever(at: int, queue: str, alone: bool, run: Path) -> None:
    """A result that cannot be pickled is dropped by the queue's own thread, and the worker ends well."""
    get: list[Frame] = [("Queue.get", f"/usr/lib/python3.11/{queue}.py", 103), ("main", s.SCRIPT, 12)]
    worker = Box(pid=102, ppid=101).at(at).exit(0)
    report = ended(run, stopped(parent(), get), worker)
    assert report.verdict is not None and report.verdict.class_ == "hang"
    assert ("had ended with status" in summary(report)) == alone
    assert ("cannot be pickled" in advice(report)) == alone
    assert verdict(report)[1] == ("likely" if alone else "possible")


@pytest.mark.parametrize("piped", [True, False])
def test_child_that_may_have_filled_its_pipe_is_told(piped: bool, run: Path) -> None:
    """Popen(stderr=PIPE) and wait(), in one function; the look-alike writes into a file."""
    script = run / "train.py"
    out = "subprocess.PIPE" if piped else "log"
    script.write_text(f"def convert(log):\n    child = subprocess.Popen(['x'], stderr={out})\n    child.wait()\n")
    os.utime(script, (0, 0))  # older than the process
    stack = [("Popen.wait", "/usr/lib/python3.11/subprocess.py", 1264), ("convert", str(script), 3)]
    report = ended(run, stopped(parent(), stack))
    assert verdict(report) == ("hang", "possible")
    assert ("Line 2 makes the child's stderr a pipe" in advice(report)) == piped


@pytest.mark.parametrize("closed", [True, False])
def test_child_whose_input_nobody_closes_is_told(closed: bool, run: Path) -> None:
    """It reads to the end of a pipe; the look-alike closes that, so that its output is what may be full."""
    script = run / "train.py"
    close = "    child.stdin.close()\n" if closed else "    child.stdin.flush()\n"
    start = "subprocess.Popen(['x'], stdin=PIPE, stdout=PIPE)"
    script.write_text(f"def score():\n    child = {start}\n{close}    child.wait()\n")
    os.utime(script, (0, 0))  # older than the process
    stack = [("Popen.wait", "/usr/lib/python3.11/subprocess.py", 1264), ("score", str(script), 4)]
    report = ended(run, stopped(parent(), stack))
    assert ("makes the child's stdin a pipe, and no line closes it" in advice(report)) is not closed
    assert ("makes the child's stdout a pipe: when it is full" in advice(report)) is closed


@pytest.mark.parametrize("way", ["with child.stdin as pipe:\n        pipe.write(b'')", "feed(child.stdin)"])
def test_input_that_may_be_closed_elsewhere_is_not_said_to_be_open(way: str, run: Path) -> None:
    script = run / "train.py"
    lines = ["def score():", "    child = subprocess.Popen(['x'], stdin=PIPE)", f"    {way}", "    child.wait()"]
    script.write_text("\n".join(lines) + "\n")
    os.utime(script, (0, 0))  # older than the process
    stack = [("Popen.wait", "/usr/lib/python3.11/subprocess.py", 1264), ("score", str(script), 4 + way.count("\n"))]
    assert "no line closes it" not in advice(ended(run, stopped(parent(), stack)))


@pytest.mark.parametrize(
    ("arguments", "own"),
    [("['sort', *files]", True), ("['sort', *files], stdin=DEVNULL", False), ("[sys.executable]", False)],
)
def test_child_without_an_input_of_its_own_may_read_the_rank_s(arguments: str, own: bool, run: Path) -> None:
    """subprocess.run(); the look-alikes give it an input, or run Python, which does not read it."""
    script = run / "train.py"
    script.write_text(f"def merge(files):\n    return subprocess.run({arguments})\n")
    os.utime(script, (0, 0))  # older than the process
    stack = [
        ("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
        ("Popen._communicate", "/usr/lib/python3.11/subprocess.py", 2108),
        ("merge", str(script), 2),
    ]
    report = ended(run, stopped(parent(), stack))
    assert verdict(report) == ("hang", "possible")
    assert ("Line 2 runs `['sort', *files]`" in advice(report)) == own


PDB: list[Frame] = [
    ("Cmd.cmdloop", "/usr/lib/python3.11/cmd.py", 126),
    ("Pdb._cmdloop", "/usr/lib/python3.11/pdb.py", 397),
    ("check", s.SCRIPT, 13),
]


@pytest.mark.parametrize(
    ("native", "stack", "words"),
    [
        ([(s.LIBC, "read")], PDB, "waited for input to the debugger at train.py:13 in check"),
        ([(s.LIBC, "read"), (s.PYTHON, "builtin_input")], FOO, "waited for input at train.py:6 in foo"),
        ([(s.LIBC, "flock"), (s.PYTHON, "fcntl_flock")], FOO, "waited for a file lock at train.py:6 in foo"),
        ([(s.LIBC, "read"), (s.PYTHON, "_Py_read")], FOO, None),
        ([(s.LIBC, "__open"), (s.PYTHON, "_io_FileIO___init__")], FOO, None),
        ([(s.LIBC, "read")], PDB[:1] + FOO, None),
    ],
)
def test_wait_in_a_system_call_is_told_by_who_made_it(
    native: Sequence[tuple[str, str | None]], stack: list[Frame], words: str | None, run: Path
) -> None:
    """The look-alikes read or open a file, which may take its moment, or run a command loop of their own."""
    report = waiting(run, 101, native, stopped(parent(), stack))
    if words is None:
        assert verdict(report)[0] == "external-kill"
    else:
        assert verdict(report)[0] == "hang"
        assert words in summary(report)


BATON: list[Frame] = [
    ("FileBaton.wait", f"{s.TORCH}/utils/file_baton.py", 50),
    ("_jit_compile", f"{s.TORCH}/utils/cpp_extension.py", 2400),
    ("main", s.SCRIPT, 12),
]
NINJA: list[Frame] = [
    ("Popen.communicate", "/usr/lib/python3.11/subprocess.py", 1209),
    ("_run_ninja_build", f"{s.TORCH}/utils/cpp_extension.py", 2600),
    ("main", s.SCRIPT, 12),
]


def test_lock_file_that_nobody_of_the_job_holds_was_left_behind(run: Path) -> None:
    """A build that was killed leaves its lock, and torch's builds wait for it without end."""
    report = ended(run, stopped(parent(), BATON))
    assert verdict(report) == ("hang", "likely")
    assert "waited for a lock file at train.py:12 in main" in summary(report)
    assert "delete the file" in advice(report)


def test_build_that_holds_the_lock_file_may_be_slow(run: Path) -> None:
    """The look-alike: another rank compiles."""
    ranks = [stopped(s.rank(number), stack) for number, stack in ((0, NINJA), (1, BATON))]
    report = ended(run, *ranks)
    assert verdict(report) == ("hang", "possible")


@pytest.mark.parametrize("by", [["kubelet"], ["python", "supervisor.py"]])
def test_idle_service_that_is_stopped_does_not_hang(by: list[str], run: Path) -> None:
    """The look-alike: waiting for requests is what it does, and no time limit ended it."""
    box = stopped(parent(), GET, by=by)
    report = ended(run, box, by=by)
    assert verdict(report)[0] == "external-kill"
    assert finding(report, "standstill") is None


IDLE: list[Frame] = [
    ("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
    ("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947),
    ("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103),
    ("_process_worker", "/usr/lib/python3.11/concurrent/futures/process.py", 249),
    ("<module>", "<string>", 1),
]
RESULT: list[Frame] = [("Condition.wait", "/usr/lib/python3.11/threading.py", 327), ("main", s.SCRIPT, 12)]


@pytest.mark.parametrize("waiting", [True, False])
def test_idle_worker_of_a_pool_is_not_the_cause(waiting: bool, run: Path) -> None:
    """The other worker is, whose task waits; with idle ones alone, the process that waits for a result."""
    idle, busy = Box(pid=102, ppid=101).at(100).mark("begin"), Box(pid=103, ppid=101).at(100).mark("begin")
    task: list[Frame] = [("Queue.get", "/usr/lib/python3.11/queue.py", 171), ("next_shard", s.SCRIPT, 30), *IDLE[3:]]
    report = ended(run, stopped(parent(), RESULT), stopped(idle, IDLE), stopped(busy, task if waiting else IDLE))
    assert verdict(report) == ("hang", "possible")
    assert report.verdict is not None and report.verdict.pid == (103 if waiting else 101)


@pytest.mark.parametrize(("native", "slept"), [("time_sleep", True), ("_PyEval_EvalFrameDefault", False)])
def test_parent_that_sleeps_between_its_looks_waits_for_its_child(native: str, slept: bool, run: Path) -> None:
    """joblib. The look-alike: the parent works."""
    child = Box(pid=102, ppid=101).at(100).mark("begin").at(60_400).signal_seen(15, 90, TIMEOUT)
    child.crash(0, code=0, state=EXIT, python=GET, native=[(s.LIBC, 0x10)])  # ended after its parent
    report = in_native(run, stopped(parent(), FOO), child, native=native)
    assert verdict(report)[0] == ("hang" if slept else "external-kill")
    assert ("waited for a queue at train.py:12 in main" in summary(report)) == slept


@pytest.mark.parametrize("between", [True, False])
def test_job_below_a_process_without_stacks_is_what_all_wait_for(between: bool, run: Path) -> None:
    """submitit polls for a job that its controller starts. The look-alike: no process above started it."""
    controller = Box(pid=102, ppid=101, created_ns=6_000_000_000, argv=["python", "-m", "submitit.local._local"])
    job = Box(pid=103, ppid=102 if between else 1, created_ns=7_000_000_000, argv=["python", "-m", "work"])
    report = in_native(run, stopped(parent(), FOO), controller, stopped(job, GET), native="time_sleep")
    assert report.verdict is not None and (report.verdict.pid == 103) == between
    assert ("waited for a queue" in summary(report)) == between


def test_empty_queue_under_a_time_limit_is_possibly_the_cause(run: Path) -> None:
    """Nothing tells how long it waited."""
    report = ended(run, stopped(parent(), GET))
    assert verdict(report) == ("hang", "possible")
    assert "waited for a queue at train.py:12 in main" in summary(report)
    found = finding(report, "standstill")
    assert found is not None and found.missing


def test_process_at_work_is_ended_by_the_signal(run: Path) -> None:
    """The look-alike: its own line, in a kernel."""
    report = ended(run, stopped(parent(), FOO, [(s.TORCH_CPU, 0x9900)]))
    assert verdict(report) == ("external-kill", "certain")


LOCK = [(s.LIBC, "__futex_abstimed_wait_common"), (s.PYTHON, "PyThread_acquire_lock_timed"), (s.PYTHON, "lock_acquire")]
SENT_AGAIN = [
    (s.LIBC, "raise"),
    (TORCH_PYTHON, "handler_SIGTERM(int, siginfo_t*, void*)"),
    (CORE, "on_sent"),
    (s.LIBC, None),
]
FEEDER: list[Frame] = [
    ("Thread._wait_for_tstate_lock", "/usr/lib/python3.11/threading.py", 1139),
    ("Thread.join", "/usr/lib/python3.11/threading.py", 1119),
    ("Queue._finalize_join", "/usr/lib/python3.11/multiprocessing/queues.py", 199),
    ("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 317),
]


def waiting(run: Path, of: int, stack: Sequence[tuple[str, str | None]], *boxes: Box, handled: bool = False) -> Report:
    """As `ended`; `stack` are the native functions of process `of`, which `handled` the signal at first."""
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, *boxes)
    frames = tuple(
        NativeFrame(0x1000 + n, image, 0x1000, None, "unwound", name) for n, (image, name) in enumerate(stack)
    )

    def with_stack(box: Snapshot) -> Snapshot:
        if box.pid != of or box.ending is None:
            return box
        end = replace(box.ending, native_stack=frames)
        return replace(box, ending=None, live=replace(end, signal=15)) if handled else replace(box, ending=end)

    processes = tuple(replace(item, snapshot=with_stack(item.snapshot)) for item in job.processes)
    return build_report(replace(job, processes=processes))


@pytest.mark.parametrize(("native", "handled"), [(LOCK, False), ([*SENT_AGAIN, *LOCK], False), (LOCK, True)])
def test_lock_of_a_forked_child_without_other_threads_is_never_released(
    native: Sequence[tuple[str, str | None]], handled: bool, run: Path
) -> None:
    """The parent waits for its batch; the worker for a lock that a thread of the parent held at fork().

    torch's handler in a worker sends the signal again: the stacks are those of the first one.
    """
    report = waiting(run, 102, native, stopped(parent(), GET), stopped(forked(), FOO), handled=handled)
    assert verdict(report) == ("hang", "likely")
    assert "waited in a forked child for a lock that nobody there holds at train.py:6 in foo" in summary(report)
    assert report.verdict is not None and "at fork()" in (report.verdict.advice or "")


def test_lock_of_a_process_that_is_no_copy_has_a_holder(run: Path) -> None:
    """The look-alike: the same stack without a fork."""
    report = waiting(run, 101, LOCK, stopped(parent(), FOO))
    assert verdict(report) == ("hang", "likely")
    assert "waited for a lock at" in summary(report)


def test_join_of_a_child_whose_queue_is_not_read_is_the_parents_line(run: Path) -> None:
    report = ended(run, stopped(parent(), JOIN), stopped(forked(), FEEDER))
    assert verdict(report) == ("hang", "likely")
    assert "waited for a child process at train.py:12 in main, which cannot end before its queue" in summary(report)
    assert report.verdict is not None and "before join()" in (report.verdict.advice or "")


@pytest.mark.parametrize(("order", "named"), [(("join()", "get()"), True), (("get()", "join()"), False)])
def test_read_that_comes_after_the_join_is_named(order: tuple[str, str], named: bool, run: Path) -> None:
    """The look-alike reads above: not all, or another queue."""
    lines = {"join()": "worker.join()", "get()": "found = results.get()"}
    program = s.program_in(run, f"def main(worker, results):\n    {lines[order[0]]}\n    {lines[order[1]]}\n")
    line = 2 + order.index("join()")
    joins: list[Frame] = [*JOIN[:-1], ("main", str(program), line)]
    report = ended(run, stopped(parent(), joins), stopped(forked(), FEEDER))
    assert report.verdict is not None
    assert ("Line 3 (`results.get()`) comes after the join() of line 2" in (report.verdict.advice or "")) == named


HELD = """def refresh():
    with {0}:
        load()
def score():
    with lock:
        return 1
def main():
    {1}
    threading.Thread(target=refresh).start()
    {2}
"""


@pytest.mark.parametrize(
    ("taken", "before", "after", "named"),
    [
        ("lock", "pass", "Pool(2)", True),
        ("lock", "Pool(2)", "pass", False),  # no thread of the parent yet
        ("other", "pass", "Pool(2)", False),
    ],
)
def test_thread_that_takes_the_lock_of_a_forked_child_is_named(
    taken: str, before: str, after: str, named: bool, run: Path
) -> None:
    script = str(s.program_in(run, HELD.format(taken, before, after)))
    report = waiting(run, 102, LOCK, stopped(parent(), GET), stopped(forked(), [("score", script, 5)]))
    words = "the thread of refresh() in the parent takes it at line 2 in refresh, and does not run in a child"
    assert (words in summary(report)) == named
    assert ("nobody in the child holds it" in summary(report)) != named
    assert ("start that thread (line 9) after the children" in advice(report)) == named
    assert ("see who holds it" in advice(report)) != named


OWN_LOCKS = """class Stats:
    def __init__(self):
        self.lock = threading.Lock()
    def update(self):
        with self.lock:
            time.sleep(1)
    def apply(self, x):
        with self.lock:
            return x
class Data:
    def __getitem__(self, i):
        return self.stats.apply(i)
class Meter:
    def __init__(self):
        self.lock = threading.Lock()
    def spin(self):
        with self.lock:
            time.sleep(1)
class Updater(threading.Thread):
    def __init__(self):
        super().__init__(name="stats-updater", daemon=True)
    def run(self):
        self.target()
def main():
    Updater().start()
    loader = DataLoader(data, num_workers=2)
    for x in loader:
        step(x)
"""
LOADER: list[Frame] = [
    ("Popen._launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71),
    ("_MultiProcessingDataLoaderIter.__init__", "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9),
]


@pytest.mark.parametrize(("place", "named"), [(("Stats.update", 6), True), (("Meter.spin", 18), False)])
def test_thread_that_was_inside_of_the_lock_at_the_end_is_named(place: tuple[str, int], named: bool, run: Path) -> None:
    """The look-alike: a lock of the same name that is another class's."""
    script = str(s.program_in(run, OWN_LOCKS))
    waits: list[Frame] = [("Stats.apply", script, 8), ("Data.__getitem__", script, 12), *LOADER, ("main", script, 27)]
    box = parent().thread(105, "python").at(60_000).signal_seen(15, 90, TIMEOUT)
    threads = {box.threads[-1].pthread: [(place[0], script, place[1]), ("Updater.run", script, 23)]}
    box.crash(0, code=0, state=EXIT, python=GET, other_python=threads, native=[(s.LIBC, 0x10)])
    report = waiting(run, 102, LOCK, box, stopped(forked(), waits))
    assert "`self.lock` (line 3), which was locked when line 27 forked it" in summary(report)
    words = "thread stats-updater in the parent takes it at line 5 in Stats.update, and does not run in a child"
    assert (words in summary(report)) == named
    assert ("dataset.stats.lock = ..." in advice(report)) and ("`__getstate__` of Stats" in advice(report))
    assert ("os.register_at_fork(before=self.lock.acquire" in advice(report)) == named


AROUND = """def work():
    with lock:
        return 1
def main():
    with lock:
        Process(target=work).start()
"""


def test_with_of_the_forking_thread_around_the_fork_is_named(run: Path) -> None:
    script = str(s.program_in(run, AROUND))
    report = waiting(
        run, 102, LOCK, stopped(parent(), GET), stopped(forked(), [("work", script, 2), LOADER[0], ("main", script, 6)])
    )
    assert "the `with` of line 5 holds it around the fork" in summary(report)
    assert "leave the `with` of line 5 before line 6 forks" in advice(report)


def test_join_of_a_thread_is_no_unread_queue(run: Path) -> None:
    """The look-alike: the child joins a thread of its own."""
    report = ended(run, stopped(parent(), JOIN), stopped(forked(), [*FEEDER[:2], ("work", s.SCRIPT, 8)]))
    assert verdict(report) == ("hang", "possible")
    assert "waited for a thread at train.py:8 in work" in summary(report)


def test_crash_beside_a_waiting_parent_is_the_cause(run: Path) -> None:
    """The look-alike: what the parent waits for died."""
    child = forked().at(500).crash(addr=0, python=FOO, native=s.NATIVE[:1])
    report = ended(run, stopped(parent(), JOIN), child)
    assert verdict(report)[0] == "null-dereference"


AT_EXIT: list[Frame] = [("_shutdown", "/usr/lib/python3.11/threading.py", 1590)]
NOTICE: list[Frame] = [
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    ("Event.wait", "/usr/lib/python3.11/threading.py", 629),
    ("main", s.SCRIPT, 12),
]


@pytest.mark.parametrize(
    ("inner", "source", "sure"),
    [
        ([("Queue.get", "/usr/lib/python3.11/queue.py", 171)], "items.get()", True),
        ([], "time.sleep(30)", True),
        ([], "write(batch)", False),
        ([("save", "/usr/lib/python3/dist-packages/torch/serialization.py", 9)], "torch.save(model, path)", False),
    ],
)
def test_program_that_came_to_its_end_waits_for_a_thread_that_is_no_daemon(
    inner: list[Frame], source: str, sure: bool, run: Path
) -> None:
    """The line is the thread's: the main one has none of the program any more. One that works may end by itself."""
    script = run / "train.py"
    script.write_text(f"def write():\n    {source}\n", encoding="utf-8")
    os.utime(script, (0, 0))
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    other: list[Frame] = [*inner, ("write", str(script), 2)]
    box.crash(0, code=0, state=EXIT, python=AT_EXIT, other_python={7: other}, native=[(s.LIBC, 16)])
    report = ended(run, box)
    assert verdict(report) == ("hang", "likely" if sure else "possible")
    assert "had come to its end, and waited for a thread that is no daemon at train.py:2 in write" in summary(report)
    assert "daemon=True" in advice(report)
    assert ("raise the time limit" in advice(report)) == (not sure)


def test_join_by_the_program_itself_is_no_end_of_it(run: Path) -> None:
    """The look-alike: the line that calls join() is the program's."""
    report = ended(run, stopped(parent(), [*FEEDER[:2], ("main", s.SCRIPT, 12)]))
    assert verdict(report) == ("hang", "possible")
    assert "waited for a thread at train.py:12 in main" in summary(report)


def test_event_that_nobody_sets_is_possibly_the_cause(run: Path) -> None:
    report = ended(run, stopped(parent(), NOTICE))
    assert verdict(report) == ("hang", "possible")
    assert "waited for an Event at train.py:12 in main" in summary(report)


def test_condition_of_another_library_is_none_of_pythons(run: Path) -> None:
    """The look-alike: a method of the same name."""
    report = ended(run, stopped(parent(), [("Condition.wait", "/opt/lib/fleet.py", 9), ("main", s.SCRIPT, 12)]))
    assert verdict(report)[0] == "external-kill"


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        (("Queue.put", "/usr/lib/python3.11/queue.py", 140), "waited for room in a full queue"),
        (("ApplyResult.wait", "/usr/lib/python3.11/multiprocessing/pool.py", 765), "the result of a pool's task"),
        (("Event.wait", "/usr/lib/python3.11/threading.py", 629), "waited for an Event"),
        (("Shop.put", "/opt/lib/shop.py", 4), "waited for a Condition"),
    ],
)
def test_wait_for_a_notice_is_told_by_who_waits(inner: Frame, says: str, run: Path) -> None:
    """The last one only has the name of a method in common."""
    report = ended(run, stopped(parent(), [NOTICE[0], inner, NOTICE[2]]))
    assert verdict(report) == ("hang", "possible")
    assert says in summary(report)


TAKEN: list[Frame] = [NOTICE[0], ("Queue.get", "/usr/lib/python3.11/queue.py", 171), NOTICE[2]]
PUT: list[Frame] = [NOTICE[0], ("Queue.put", "/usr/lib/python3.11/queue.py", 140), NOTICE[2]]
TAKE: list[Frame] = [
    ("write", s.SCRIPT, 8),
    ("Thread.run", "/usr/lib/python3.11/threading.py", 982),
    ("Thread._bootstrap_inner", "/usr/lib/python3.11/threading.py", 1045),
]
POOL: list[Frame] = [NOTICE[0], ("ApplyResult.wait", "/usr/lib/python3.11/multiprocessing/pool.py", 765), NOTICE[2]]
DIED = "its thread Thread-1 (write) had died of KeyError: 2 at train.py:8 in write"


def with_dead_thread(stack: Sequence[Frame], others: Mapping[int, Sequence[Frame]] | None = None) -> Box:
    """A process that SIGTERM met below `stack`; one of its threads had died, `others` had not."""
    box = parent().at(500).thread_exception("KeyError", "2", TAKE).at(60_000).signal_seen(15, 90, TIMEOUT)
    return box.crash(0, code=0, state=EXIT, python=stack, other_python=others, native=[(s.LIBC, 0x10)])


@pytest.mark.parametrize(
    "stack", [PUT, [NOTICE[0], ("Queue.get", "/usr/lib/python3.11/queue.py", 171), NOTICE[2]], NOTICE]
)
def test_thread_that_an_exception_ended_explains_the_wait_for_it(stack: Sequence[Frame], run: Path) -> None:
    """No other thread could have taken from the queue, filled it, or set the event."""
    report = ended(run, with_dead_thread(stack))
    assert verdict(report) == ("hang", "likely")
    assert DIED in summary(report)
    assert advice(report).startswith("Look at KeyError: 2 at train.py:8 in write first")
    assert "wait for ever" in advice(report) or "waiting for ever" in advice(report)
    (died,) = next(item.thread_exceptions or [] for item in report.processes or () if item.thread_exceptions)
    assert (died.type, died.thread, died.tid) == ("KeyError", "Thread-1 (write)", 777)


def test_thread_that_died_beside_others_is_named_and_not_accused(run: Path) -> None:
    """The look-alike: another thread may be the one that takes from the queue."""
    report = ended(run, with_dead_thread(PUT, {5: [("poll", s.SCRIPT, 31)]}))
    assert verdict(report) == ("hang", "possible")
    assert DIED in summary(report)


def test_queue_between_processes_may_be_filled_by_another_process(run: Path) -> None:
    """The look-alike: no thread of this process need fill it."""
    report = ended(run, with_dead_thread([NOTICE[0], *GET]))
    assert verdict(report) == ("hang", "possible")


def test_process_at_work_did_not_wait_for_its_dead_thread(run: Path) -> None:
    """The look-alike: the main thread computes. The exception is shown, and explains nothing."""
    report = ended(run, with_dead_thread(FOO))
    assert verdict(report) == ("external-kill", "certain")
    assert "KeyError" not in summary(report)
    assert "thread Thread-1 (write) had died of KeyError: 2" in evidence(report)


def test_child_process_is_not_what_a_thread_would_have_done(run: Path) -> None:
    """The look-alike: it waits for a process."""
    report = ended(run, with_dead_thread(JOIN))
    assert "waited for a child process" in summary(report) and "KeyError" not in summary(report)


def test_pool_whose_receiving_thread_is_missing_never_gets_a_result(run: Path) -> None:
    """It ends without a word when the tensor's sender has ended; the pool's other threads go on."""
    pool = "/usr/lib/python3.11/multiprocessing/pool.py"
    rest = {5: [("Pool._handle_workers", pool, 522)], 6: [("Pool._handle_tasks", pool, 531)]}
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    report = ended(run, box.crash(0, code=0, state=EXIT, python=POOL, other_python=rest, native=[(s.LIBC, 0x10)]))
    assert verdict(report) == ("hang", "likely")
    assert "the pool's thread that receives results had ended" in summary(report)


def test_pool_that_receives_results_waits_for_its_worker(run: Path) -> None:
    """The look-alike: all three threads of the pool run."""
    pool = "/usr/lib/python3.11/multiprocessing/pool.py"
    rest = {n: [(f"Pool._handle_{name}", pool, 500 + n)] for n, name in enumerate(("workers", "tasks", "results"), 5)}
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    report = ended(run, box.crash(0, code=0, state=EXIT, python=POOL, other_python=rest, native=[(s.LIBC, 0x10)]))
    assert verdict(report) == ("hang", "possible")
    assert "had ended" not in summary(report)


def test_interrupted_wait_names_the_thread_that_had_died(run: Path) -> None:
    """Ctrl-C is how most people end such a wait."""
    box = parent().at(500).thread_exception("KeyError", "2", TAKE).at(9_000).signal_seen(2, 0)
    report = build_report(s.load(run, box.exception("KeyboardInterrupt", "", PUT).exit(130)))
    assert verdict(report)[0] == "external-kill"
    assert DIED in summary(report)


@pytest.mark.parametrize(("kind", "named"), [("queue.Empty", True), ("_queue.Empty", True), ("ValueError", False)])
def test_wait_that_was_given_up_names_the_thread_that_had_died(kind: str, named: bool, run: Path) -> None:
    """get(timeout=...) raised. The look-alike: an exception of another sort, of which it is evidence only."""
    box = parent().at(500).thread_exception("KeyError", "2", TAKE).at(9_000)
    report = build_report(s.load(run, box.exception(kind, "", NOTICE).exit(1)))
    assert verdict(report) == ("python-exception", "certain")
    assert (DIED in summary(report)) == named
    assert "had died of KeyError: 2" in evidence(report)


def test_wait_on_the_way_out_names_the_exception(run: Path) -> None:
    """`with Pool():` waits in __exit__() while an exception passes through."""
    report = with_handled(run, PythonFrame("step", s.SCRIPT, 5))
    assert verdict(report) == ("hang", "possible")
    assert "; it was handling ValueError: no file at train.py:5 in step; SIGTERM" in summary(report)
    assert advice(report).startswith("Look at ValueError: no file at train.py:5 in step first")


def test_exception_that_a_library_handles_is_not_why_a_program_waits(run: Path) -> None:
    """The look-alike: threading.py or queue.py had caught it."""
    assert "handling" not in summary(with_handled(run, PythonFrame("get", "/usr/lib/python3.11/queue.py", 5)))


def with_handled(run: Path, *stack: PythonFrame) -> Report:
    """A process that waits for an Event; its main thread was handling an exception."""
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, stopped(parent(), NOTICE))
    error = HandledException("ValueError", "no file", stack)
    processes = [
        replace(item, snapshot=replace(item.snapshot, ending=replace(item.snapshot.ending, handled=error)))
        if item.snapshot.ending is not None
        else item
        for item in job.processes
    ]
    return build_report(replace(job, processes=tuple(processes)))


LOOP: list[Frame] = [
    ("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468),
    ("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
    ("run", "/usr/lib/python3.11/asyncio/runners.py", 190),
    ("<module>", s.SCRIPT, 34),
]


def test_event_loop_without_work_is_possibly_the_cause(run: Path) -> None:
    """A task that failed is silent, and whoever awaits its answer waits for ever."""
    report = ended(run, stopped(parent(), LOOP))
    assert verdict(report) == ("hang", "possible")
    assert "waited in the event loop of asyncio at train.py:34 in <module>" in summary(report)


def test_server_that_is_stopped_does_not_hang(run: Path) -> None:
    """The look-alike: waiting for requests is what it does, and no time limit ended it."""
    report = ended(run, stopped(parent(), LOOP, by=["kubelet"]), by=["kubelet"])
    assert verdict(report)[0] == "external-kill"


def test_task_that_computes_is_no_wait_of_its_loop(run: Path) -> None:
    """The look-alike: the loop runs a callback."""
    report = ended(run, stopped(parent(), [("step", s.SCRIPT, 12), *LOOP[1:]]))
    assert verdict(report)[0] == "external-kill"


@pytest.mark.parametrize("message", ["no file", "mat1 and mat2 shapes cannot be multiplied (4x7 and 8x1)"])
@pytest.mark.parametrize("kept", [True, False])
def test_error_after_which_a_thread_kept_the_process_names_both(kept: bool, message: str, run: Path) -> None:
    """The exception is the cause, a known one, too; the process was still there for a thread that is no daemon. The
    look-alike: it was stopped on its way out.
    """
    box = parent().at(500).exception("RuntimeError", message, [("fit", s.SCRIPT, 22)])
    stack = AT_EXIT if kept else [("close", "/usr/lib/python3.11/logging/__init__.py", 9)]
    box = box.at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=stack, other_python={7: [("report", s.SCRIPT, 10)]}, native=[(s.LIBC, 16)])
    report = ended(run, box)
    assert verdict(report) == ("python-exception", "certain")
    words = "; the process then waited for a thread that is no daemon at train.py:10 in report"
    assert (words in summary(report)) == kept
    assert ("daemon=True" in advice(report)) == kept


@pytest.mark.parametrize(
    ("stack", "says"), [(POOL, "Process 101 (train.py) waited for the result of a pool's task"), (FOO, "was ended by")]
)
def test_worker_of_a_pool_that_waits_for_its_next_task_is_idle(stack: list[Frame], says: str, run: Path) -> None:
    """The look-alike: its parent computes, or waits for a result that is lost; then that is the wait."""
    folder = "/usr/lib/python3.11/multiprocessing"
    idle: list[Frame] = [
        ("Connection._recv", f"{folder}/connection.py", 395),
        ("SimpleQueue.get", f"{folder}/queues.py", 367),
        ("worker", f"{folder}/pool.py", 114),
        ("BaseProcess.run", f"{folder}/process.py", 108),
    ]
    worker = Box(pid=102, ppid=101).at(100).mark("begin").at(59_000).signal_seen(15, 90, TIMEOUT)
    worker.crash(0, code=0, state=EXIT, python=idle, native=[(s.LIBC, 0x10)])
    report = ended(run, worker, stopped(parent(), stack))
    assert says in summary(report) and "waited for a queue" not in summary(report)


FUTURE_RESULT: list[Frame] = [
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    ("Future.result", "/usr/lib/python3.11/concurrent/futures/_base.py", 451),
    ("load", s.SCRIPT, 19),
]


def test_forked_child_waits_for_a_thread_of_its_parent(run: Path) -> None:
    """A ThreadPoolExecutor that the parent had used: its threads do not exist in the child."""
    report = ended(run, stopped(parent(), GET), stopped(forked(), FUTURE_RESULT))
    assert verdict(report) == ("hang", "likely")
    assert "waited in a forked child for a thread that exists in its parent only at train.py:19 in load" in summary(
        report
    )
    assert "fork() copies one thread only" in advice(report)


def test_result_of_a_thread_in_the_same_process_may_still_come(run: Path) -> None:
    """The look-alike: no fork."""
    report = ended(run, stopped(parent(), FUTURE_RESULT))
    assert verdict(report) == ("hang", "possible")
    assert "waited for the result of a Future" in summary(report)


IDLE_THREAD: list[Frame] = [("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81)]


@pytest.mark.parametrize("main", [GET, FOO])
def test_wait_is_the_main_thread_s_where_another_one_took_the_signal(run: Path, main: list[Frame]) -> None:
    """The kernel gives a signal to any thread. A main thread that works does not wait, whatever the others do."""
    box = parent().thread(105, "pool").at(60_000).signal_seen(15, 90, TIMEOUT)
    of_main = {box.threads[0].pthread: main}
    box.crash(0, code=0, state=EXIT, tid=105, python=IDLE_THREAD, other_python=of_main, native=[(s.LIBC, 0x10)])
    report = ended(run, box)
    if main is GET:
        assert verdict(report) == ("hang", "possible")
        assert "waited for a queue at train.py:12 in main" in summary(report)
    else:
        assert verdict(report)[0] == "external-kill"
        assert "train.py:6 in foo" in advice(report)


@pytest.mark.parametrize("folder", ["torch/distributed/elastic/rendezvous", "site-packages/other"])
def test_launcher_that_waits_for_other_nodes_is_told_with_their_number(folder: str, run: Path) -> None:
    """The look-alike: a function of that name in another package."""
    stack: list[Frame] = [("StaticTCPRendezvous.next_rendezvous", f"/usr/lib/{folder}/static.py", 67)]
    box = Box(pid=101, ppid=90, argv=["python", "/usr/bin/torchrun", "--nnodes=2", "train.py"])
    report = ended(run, stopped(box.versions(torch="2.13.0"), [*stack, ("main", "/usr/bin/torchrun", 8)]))
    waits = "elastic" in folder
    assert ("waited in its rendezvous for the other nodes of the job (--nnodes=2)" in summary(report)) == waits
    assert ("run the same command on each node" in advice(report)) == waits
