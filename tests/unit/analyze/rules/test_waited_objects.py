"""standstill: the object that a line waits for by its name, who should have ended the wait, and what hindered it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, in_native, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11"
GET: list[Frame] = [("Connection._recv", f"{LIB}/multiprocessing/connection.py", 395)]
GET.append(("Queue.get", f"{LIB}/multiprocessing/queues.py", 103))
GRAPH = "Cowardly refusing to serialize non-leaf tensor which requires_grad"
POOL: list[Frame] = [
    ("_WorkItem.run", f"{LIB}/concurrent/futures/thread.py", 58),
    ("_worker", f"{LIB}/concurrent/futures/thread.py", 83),
]
RESULT: list[Frame] = [
    ("Condition.wait", f"{LIB}/threading.py", 327),
    ("Future.result", f"{LIB}/concurrent/futures/_base.py", 451),
]

EVENT = """\
class Prefetcher:
    def fill(self):
        self.batches = [item for item in self.source if len(item) > self.limit]
        if not self.batches:
            return
        self.ready.set()

    def first(self):
        self.ready.wait()
        return self.batches[0]
"""


def of(run: Path, source: str) -> str:
    """A file that is older than the processes."""
    script = run / "train.py"
    script.write_text(source)
    os.utime(script, (0, 0))
    return str(script)


def waits_for_event(run: Path, source: str) -> Report:
    stack: list[Frame] = [
        ("Condition.wait", f"{LIB}/threading.py", 327),
        ("Event.wait", f"{LIB}/threading.py", 629),
        ("Prefetcher.first", of(run, source), 9),
    ]
    return ended(run, stopped(parent(), stack))


def test_the_only_line_that_sets_an_event_is_told_with_what_leaves_before(run: Path) -> None:
    report = waits_for_event(run, EVENT)
    assert verdict(report) == ("hang", "possible")
    assert "waited for the Event `self.ready` at train.py:9 in Prefetcher.first" in summary(report)
    assert (
        "only `self.ready.set()` at line 6 in Prefetcher.fill ends it, and that is not reached after "
        "`if not self.batches` (line 4, which leaves)"
    ) in advice(report)


def test_one_of_two_lines_that_a_branch_goes_by_is_told(run: Path) -> None:
    """The last one of them; without such a branch both are only named."""
    first = "        self.batches = [item for item in self.source if len(item) > self.limit]"
    report = waits_for_event(run, EVENT.replace(first, "        self.ready.set()"))
    assert "of which the one at line 6 is not reached after `if not self.batches` (line 4, which leaves)" in advice(
        report
    )


def test_many_lines_that_set_it_are_not_listed(run: Path) -> None:
    """The look-alike: three ways to set it, none of which is known to be the one."""
    report = waits_for_event(run, EVENT + "    def stop(self):\n        self.ready.set(); self.ready.set()\n")
    assert "self.ready" in summary(report)
    assert "ends it" not in advice(report)


def test_file_that_is_newer_names_nothing(run: Path) -> None:
    """The look-alike: what the lines hold now is not what ran."""
    script = run / "train.py"
    script.write_text(EVENT)
    stack: list[Frame] = [("Event.wait", f"{LIB}/threading.py", 629), ("first", str(script), 9)]
    inner: list[Frame] = [("Condition.wait", f"{LIB}/threading.py", 327)]
    report = ended(run, stopped(parent(), [*inner, *stack]))
    assert "waited for an Event at" in summary(report)
    assert "ready" not in summary(report) + advice(report)


QUEUE = """\
def work(tasks, out):
    while True:
        task = tasks.get()
        out.put(task)

def main():
    Process(target=work, args=(tasks, results)).start()
    tasks.put(1)
    results.get()
"""


@pytest.mark.parametrize("dropped", [True, False])
def test_object_that_a_queue_dropped_is_the_reason(dropped: bool, run: Path) -> None:
    """The worker waits for its next task; the look-alike has no such error."""
    script = of(run, QUEUE)
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000)
    if dropped:
        seen = [{"name": "['x']", "value": "a tensor with a graph"}]
        feed: list[Frame] = [("Queue._feed", f"{LIB}/multiprocessing/queues.py", 244)]
        worker.exception("RuntimeError", GRAPH, feed, thread="QueueFeederThread", on_its_way="put", variables=seen)
    stopped(worker, [*GET, ("work", script, 3)])
    report = ended(run, stopped(parent(), [*GET, ("main", script, 9)]), worker)
    assert verdict(report) == ("hang", "likely" if dropped else "possible")
    assert summary(report).startswith("Process 101 (train.py) waited for the queue `results` at train.py:9 in main")
    assert ("could not send what it had put into a queue: RuntimeError: Cowardly" in summary(report)) == dropped
    assert ("Its part ['x'] has a graph" in advice(report)) == dropped
    if not dropped:
        assert "In this file only `out.put(...)` at line 4 in work ends it" in advice(report)


def test_queue_is_known_by_the_bare_names_of_cpython_3_10(run: Path) -> None:
    """Its code objects have no qualified names."""
    script = of(run, QUEUE)
    bare: list[Frame] = [(name.rpartition(".")[2], file, line) for name, file, line in GET]
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000)
    worker.exception("RuntimeError", GRAPH, [], thread="QueueFeederThread", on_its_way="put")
    stopped(worker, [*bare, ("work", script, 3)])
    report = ended(run, stopped(parent(), [*bare, ("main", script, 9)]), worker)
    assert verdict(report) == ("hang", "likely")
    assert "could not send what it had put into a queue: RuntimeError: Cowardly" in summary(report)


@pytest.mark.parametrize(
    "message",
    [
        "Can't pickle local object 'work.<locals>.<lambda>'",
        "Can't get local object 'work.<locals>.<lambda>'",  # CPython 3.13
        "Can't pickle local object <function work.<locals>.<lambda> at 0x7f3e5c2b8f40>",  # 3.14
        "cannot pickle 'TextIOWrapper' instances",
    ],
)
def test_what_cannot_be_pickled_is_advised_by_the_words_of_every_python(message: str, run: Path) -> None:
    script = of(run, QUEUE)
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000)
    worker.exception("AttributeError", message, [], thread="QueueFeederThread", on_its_way="put")
    stopped(worker, [*GET, ("work", script, 3)])
    report = ended(run, stopped(parent(), [*GET, ("main", script, 9)]), worker)
    assert "ut plain data at line 4 in work (`out.put(...)`)" in advice(report)


def test_process_that_could_not_send_and_ended_well_is_no_death(run: Path) -> None:
    """The look-alike: the error alone is nothing that ended a process."""
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000)
    worker.exception("RuntimeError", GRAPH, [], thread="QueueFeederThread", on_its_way="put").exit(0)
    report = ended(run, stopped(parent(), [("main", s.SCRIPT, 5)]), worker)
    assert "RuntimeError" not in summary(report)


@pytest.mark.parametrize("idle", [False, True])
def test_pool_whose_threads_wait_for_its_own_tasks(idle: bool, run: Path) -> None:
    """The look-alike: one thread is free, and takes the next task."""
    script = of(run, "def load(n):\n    views = [pool.submit(turn, n)]\n    return views[0].result()\n")
    box = parent()
    inner = [*RESULT, ("load", script, 3), *POOL]
    free: list[Frame] = [POOL[1]]
    threads = {777: inner, 778: free if idle else inner}
    stack: list[Frame] = [*RESULT, ("main", s.SCRIPT, 20)]
    box.at(60_000).signal_seen(15, 90, ["timeout", "60", "python", "train.py"])
    box.crash(0, code=0, state=6, python=stack, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)], other_python=threads)
    report = ended(run, box)
    assert verdict(report) == ("hang", "possible" if idle else "likely")
    assert ("all 2 threads of its ThreadPoolExecutor waited for futures themselves" in summary(report)) != idle
    assert ("what line 2 (`pool.submit(turn, n)`) submits found none free" in advice(report)) != idle


SHARED = """\
def predict(requests, results):
    while True:
        number = requests.get()
        results.put(number)

def submit(self):
    Process(target=predict, args=(self.requests, self.results)).start()
    self.requests.put(1)
    return self.results.get()
"""
LOCKED: list[Frame] = [("SemLock.__enter__", f"{LIB}/multiprocessing/synchronize.py", 95)]
LOCKED.append(("Queue.get", f"{LIB}/multiprocessing/queues.py", 102))


@pytest.mark.parametrize(("reads", "at"), [(False, 5_000), (True, 5_000), (False, 59_900)])
def test_lock_of_a_queue_that_a_killed_process_took_along(reads: bool, at: int, run: Path) -> None:
    """The look-alikes: another worker is beyond the lock, and reads; the process was killed with all others."""
    script = of(run, SHARED)
    killed = Box(pid=102, ppid=101).versions(torch="2.13.0").at(at)
    workers = [Box(pid=pid, ppid=101).versions(torch="2.13.0") for pid in (103, 104)]
    stopped(workers[0], [*LOCKED, ("predict", script, 3)])
    stopped(workers[1], [*(GET if reads else LOCKED), ("predict", script, 3)])
    main = parent()
    main.at(at + 10).wait(102, signal=9)
    report = ended(run, stopped(main, [*GET, ("submit", script, 9)]), killed, *workers)
    fires = not reads and at == 5_000
    assert ("waited for the read lock of the queue `requests`" in summary(report)) == fires
    assert ("never gives the queue's lock back" in advice(report)) == fires
    if fires:
        assert verdict(report) == ("hang", "likely")
        assert summary(report).startswith("Process 101 (train.py) waited for the queue `self.results`")


def test_workers_of_a_pool_are_no_line_of_the_program(run: Path) -> None:
    """The look-alike: a worker that is killed in its task is replaced, and one of the others reads for all."""
    killed = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000)
    worker: list[Frame] = [("worker", f"{LIB}/multiprocessing/pool.py", 114)]
    reads: list[Frame] = [("SimpleQueue.get", f"{LIB}/multiprocessing/queues.py", 366), *worker]
    waits: list[Frame] = [LOCKED[0], ("SimpleQueue.get", f"{LIB}/multiprocessing/queues.py", 365), *worker]
    others = [Box(pid=pid, ppid=101).versions(torch="2.13.0") for pid in (103, 104)]
    stopped(others[0], [("Connection._recv", f"{LIB}/multiprocessing/connection.py", 395), *reads])
    stopped(others[1], waits)
    main = parent()
    main.at(5_010).wait(102, signal=9)
    pool: list[Frame] = [("ApplyResult.wait", f"{LIB}/multiprocessing/pool.py", 765), ("main", s.SCRIPT, 18)]
    report = ended(run, stopped(main, pool), killed, *others)
    assert "read lock" not in summary(report)


@pytest.mark.parametrize(
    ("body", "polls"),
    [
        ("        time.sleep(1)\n", True),
        ("        for row in rows:\n            work(row)\n        time.sleep(1)\n", False),
    ],
)
def test_loop_that_only_sleeps_is_told_with_its_condition(body: str, polls: bool, run: Path) -> None:
    """The look-alike works in between."""
    script = of(run, f"def wait(path):\n    while not path.exists():\n{body}")
    line = 2 + body.count("\n")
    report = in_native(run, stopped(parent(), [("wait", script, line)]), native="pysleep")
    assert (" slept at train.py" in summary(report)) == polls
    assert (verdict(report) == ("hang", "possible")) == polls
    assert ("should have ended `while not path.exists()` (line 2)" in advice(report)) == polls


HOLDS = """\
def update(self):
    with self.lock:
        self.count += 1
        save(self)

def save(self):
    with {0}:
        write(self)
"""


@pytest.mark.parametrize(
    ("lock", "within", "words"),
    [
        ("self.lock", None, "the same thread was inside of `with self.lock` (line 2) already"),
        ("self.other", None, None),
        ("self.lock", "Queue.put", "was inside of `with self.lock` (line 2), at train.py:4 in update, in Queue.put"),
        ("self.lock", "Condition.wait", None),
    ],
)
def test_who_holds_a_lock_is_told(lock: str, within: str | None, words: str | None, run: Path) -> None:
    """The thread itself, or another one; the look-alikes hold another lock, or let go of it in Condition.wait()."""
    script = of(run, HOLDS.format(lock))
    outer: list[Frame] = [("update", script, 4)]
    inner: list[Frame] = [("save", script, 7)]
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    others = {777: [(within, f"{LIB}/queue.py", 140), *outer]} if within is not None else {}
    stack = inner if within is not None else [*inner, *outer]
    box.crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x20)], other_python=others)
    report = in_native(run, box, native="PyThread_acquire_lock_timed")
    assert f"waited for the lock `{lock}` at train.py:7 in save" in summary(report)
    assert ("was inside of" in summary(report)) == (words is not None)
    assert words is None or words in summary(report)
    assert ("not reentrant" in advice(report)) == (words is not None and "same thread" in words)


FILLS = """\
def fill(records, ready):
    for record in records:
        ready.put(record["label"])

def main():
    pool.submit(fill, records, ready)
    return ready.get()
"""


@pytest.mark.parametrize("function", ["fill", "log"])
def test_task_that_failed_in_the_function_that_fills_a_queue(function: str, run: Path) -> None:
    """The look-alike: another task of the pool failed, which fills nothing."""
    script = of(run, FILLS)
    error: list[Frame] = [(function, script, 3), POOL[0], POOL[1]]
    box = parent().at(5_000).exception("KeyError", "'label'", error, thread="ThreadPoolExecutor-0_0", on_its_way="task")
    box.at(60_000).signal_seen(15, 90, TIMEOUT)
    stack: list[Frame] = [("Queue.get", f"{LIB}/queue.py", 171), ("main", script, 7)]
    free: list[Frame] = [POOL[1]]
    box.crash(0, code=0, state=EXIT, python=stack, native=[(s.LIBC, 0x10)], other_python={777: free})
    report = ended(run, box)
    known = function == "fill"
    assert verdict(report) == ("hang", "likely" if known else "possible")
    assert ("a task of its pool had failed with KeyError: 'label' at train.py:3 in fill" in summary(report)) == known
    assert ("A Future keeps the exception" in advice(report)) == known


POOL_TASKS = """\
import {module}
def main(flag):
    progress = {made}
    tasks = []
    pool = {pool}
    {call}
    progress.get()
{after}
"""


def of_pool(
    run: Path, call: str, made: str = "mp.Queue()", module: str = "multiprocessing as mp", **more: str
) -> Report:
    """The pool's worker had ended well."""
    words = {"pool": "mp.Pool(2)", "after": "", **more}
    script = of(run, POOL_TASKS.format(call=call, made=made, module=module, **words))
    worker = Box(pid=102, ppid=101).at(5_000).exit(0)
    return ended(run, stopped(parent().wait(102, exit_code=0), [*GET, ("main", script, 7)]), worker)


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("pool.apply_async(work, args=(1, progress))", {}),
        ("tasks.append(pool.starmap_async(work, [(i, progress) for i in range(3)]))", {}),
        ("tasks = [pool.apply_async(work, (i, progress)) for i in range(3)]", {"after": "    tasks[0].get()"}),
        ("pool.apply_async(work, (1, progress))", {"module": "torch.multiprocessing as mp"}),
        ("pool.submit(work, 1, progress)", {"pool": "ProcessPoolExecutor(2)"}),
    ],
)
def test_queue_that_is_passed_to_a_task_is_refused(call: str, more: dict[str, str], run: Path) -> None:
    """Its error stays in a result that nobody asks for."""
    report = of_pool(run, call, **more)
    assert verdict(report) == ("hang", "likely")
    assert "line 6 passes `progress`, made by `mp.Queue()`, to " in summary(report)
    assert "`progress` (line 3: `mp.Queue()`) cannot be an argument of a task (line 6)" in advice(report)


@pytest.mark.parametrize(
    ("call", "made", "more"),
    [
        ("pool.apply_async(work, (1,))", "mp.Queue()", {}),
        ("pool.apply_async(work, (1, progress))", "mp.Manager().Queue()", {}),
        ("pool.apply_async(work, (1, progress.name))", "mp.Queue()", {}),
    ],
)
def test_tasks_that_nobody_asks_for_may_hide_an_error(call: str, made: str, more: dict[str, str], run: Path) -> None:
    """Nothing of what cannot be passed, where nothing such is seen."""
    report = of_pool(run, call, made, **more)
    assert "had ended with status 0" in summary(report)
    assert "Line 6 gives tasks to a pool by apply_async(), and nobody asks for their results before line 7" in advice(
        report
    )


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("pool.apply_async(work, (1, progress), error_callback=print)", {}),
        ("pool.apply_async(work, (1, progress)).get()", {}),
        ("[item.get() for item in [pool.apply_async(work, (1, progress))]]", {}),
        ("pool.map(work, [progress])", {}),
        ("pool.apply_async(work, (1, progress))", {"pool": "ThreadPool(2)"}),
        ("pool.apply_async(work, (1, progress))", {"module": "multiprocessing.dummy as mp"}),
        ("if flag: pool.apply_async(work, (1, progress))", {}),
    ],
)
def test_tasks_whose_errors_show_are_not_told(call: str, more: dict[str, str], run: Path) -> None:
    """Or which threads run, or which may never have been given."""
    report = of_pool(run, call, **more)
    assert "nobody asks" not in advice(report)
    assert "made by" not in summary(report)


BRANCHED = """\
def work(index, queue, size):
    part = load(index)
    if {test}:
        return part
    queue.put(part)

def main():
    queue = mp.Queue()
    for index in range(1, 3):
        Process(target=work, args=(index, queue, 8)).start()
    {own}
    queue.get()
"""


@pytest.mark.parametrize(
    ("test", "own", "told"),
    [
        ("queue is None", "work(0, None, 8)", False),  # who has no queue does not put
        ("queue is None", "pass", False),
        ("not queue", "pass", False),
        ("index == 0", "work(0, queue, 8)", False),  # its own call takes that way
        ("index == 0", "pass", True),
        ("not part", "work(0, queue, 8)", True),
    ],
)
def test_branch_that_only_the_parent_takes_is_not_what_kept_a_child_from_putting(
    test: str, own: str, told: bool, run: Path
) -> None:
    """The same function runs in the parent; a test of anything else is told."""
    script = of(run, BRANCHED.format(test=test, own=own))
    report = ended(run, stopped(parent(), [*GET, ("main", script, 12)]))
    assert "In this file only `queue.put(...)` at line 5 in work ends it" in advice(report)
    assert (f"not reached after `if {test}`" in advice(report)) == told


def test_child_at_work_above_the_line_that_puts_has_not_left_it_out(run: Path) -> None:
    """What comes behind its place is not what kept it."""
    script = of(run, BRANCHED.format(test="not part", own="pass"))
    worker = Box(pid=102, ppid=101, created_ns=6_000_000_000).versions(torch="2.13.0")
    stopped(worker, [("work", script, 2)], [(s.TORCH_CPU, 0x9900)])
    report = ended(run, stopped(parent(), [*GET, ("main", script, 12)]), worker)
    assert "It was above `queue.put(...)` at line 5 in work, which in this file alone ends the wait." in advice(report)
    assert "not part" not in advice(report)


@pytest.mark.parametrize(
    ("call", "told"), [("pool.apply_async(work)", True), ("mp.Process(target=work).start()", False)]
)
def test_tasks_of_a_pool_are_told_only_where_the_program_has_some(call: str, told: bool, run: Path) -> None:
    """All children ended well without filling the queue."""
    script = of(run, f"def main():\n    {call}\n    results.get()\n")
    main = parent()
    main.at(5_100).wait(102, exit_code=0)
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000)
    report = ended(run, stopped(main, [*GET, ("main", script, 3)]), worker)
    assert "had ended with status 0" in summary(report)
    assert ("a pool's task" in advice(report)) == told


NESTED = """\
class Cache:
    def get(self, key):
        with self.lock:
            return {0}.load(key)

    def load(self, key):
        with self.lock:
            return self.rows[key]
"""


@pytest.mark.parametrize(("owner", "own"), [("self", True), ("super()", True), ("self.below", False), ("other", False)])
def test_lock_of_another_object_of_its_class_is_another_lock(owner: str, own: bool, run: Path) -> None:
    """A cache before a cache: each has its own."""
    script = of(run, NESTED.format(owner))
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    stack: list[Frame] = [("Cache.load", script, 7), ("Cache.get", script, 4)]
    box.crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x20)])
    report = in_native(run, box, native="PyThread_acquire_lock_timed")
    assert ("the same thread was inside of `with self.lock` (line 3)" in summary(report)) == own
