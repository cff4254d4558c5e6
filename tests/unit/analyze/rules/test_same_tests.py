"""standstill: loops whose condition no pass changes, tries that go on for ever, and files that nobody writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import HeldValue
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, in_native, parent, stopped, with_ending
from tests.support.synth import Box, Frame


def in_loop(run: Path, source: str, *frames: tuple[str, int], **values: str) -> Report:
    """Ended while it worked; the values are those of the innermost function."""
    program = str(s.program_in(run, source))
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    box = parent().at(59_990).alloc(0x1000, 64)
    job = s.load(run, root, stopped(box, [(name, program, line) for name, line in frames]))
    held = tuple(HeldValue(name, value, 0) for name, value in values.items())
    processes = [with_ending(item, values=held) if item.snapshot.pid == 101 else item for item in job.processes]
    return build_report(replace(job, processes=tuple(processes)))


SAMPLES = """\
def sample(args, model):
    images = []
    while len(images) * args.batch < args.count:
        batch = draw(model, args.batch)
        save(batch)
    print(len(images))
"""


def test_list_that_nothing_fills_is_told_whatever_was_made_meanwhile(run: Path) -> None:
    found = in_loop(run, SAMPLES, ("sample", 5), ("main", 9), **{"args.batch": "8", "args.count": "32"})
    assert verdict(found) == ("hang", "likely")
    assert "nothing in the function puts anything into `images` (line 2, `images = []`), so what " in summary(found)
    assert advice(found).startswith("Add each result to `images` in the loop of line 3: `images.append(...)`")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        save(batch)\n", "        save(batch, images)\n"),  # which may fill it
        ("        save(batch)\n", "        images += batch\n"),
        ("        save(batch)\n", "        args.count -= 1\n"),
        ("        save(batch)\n", "        if not batch:\n            return\n"),
        ("    images = []\n", "    images = stored(args)\n"),
        ("args.count:", "8 and not args.stopped:"),  # which another thread sets
    ],
)
def test_list_that_a_pass_may_fill_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    found = in_loop(run, SAMPLES.replace(old, new), ("sample", 4), ("main", 9), **{"args.batch": "8"})
    assert "puts anything into" not in summary(found)


SEARCH = """\
def backtrack(loss, w, grad, value):
    step = 1.0
    while loss(w - step * grad) >= value:
        step *= 0.5
    return step
"""


def test_step_that_was_halved_down_to_nothing_is_told(run: Path) -> None:
    found = in_loop(run, SEARCH, ("backtrack", 3), ("fit", 9), step="0.0")
    assert verdict(found) == ("hang", "likely")
    assert "line 4 (`step *= 0.5`) has made `step` so small that it is 0, and each pass asks" in summary(found)
    assert advice(found).startswith("Bound the passes of line 3, as by `for _ in range(40):` with `break`")


@pytest.mark.parametrize(("step", "more"), [("0.25", ""), ("0.0", "        grad = grad + noise()\n")])
def test_step_that_is_left_may_still_find_something(step: str, more: str, run: Path) -> None:
    """The look-alikes: it is not 0, or a pass changes something else."""
    source = SEARCH.replace("        step *= 0.5\n", f"        step *= 0.5\n{more}")
    assert "so small that it is 0" not in summary(in_loop(run, source, ("backtrack", 3), ("fit", 9), step=step))


TRIES = """\
def load(path):
    while True:
        try:
            return read(path)["model"]
        except Exception:
            time.sleep(0.2)
"""


def asleep(run: Path, source: str, *frames: tuple[str, int]) -> Report:
    """In time.sleep(), after tensors that it had just made."""
    program = str(s.program_in(run, source))
    stack: list[Frame] = [(name, program, line) for name, line in frames]
    return in_native(run, stopped(parent().at(59_990).alloc(0x1000, 64), stack), native="time_sleep")


def test_tries_without_a_limit_are_told_where_it_slept_between_two(run: Path) -> None:
    found = asleep(run, TRIES, ("load", 6), ("main", 9))
    assert verdict(found) == ("hang", "possible")
    assert "was in the loop of line 2 (`while True`) at program.py:6 in load" in summary(found)
    assert "the `except Exception` of line 5 goes on with the next try each time" in summary(found)
    assert "Bound the tries" in advice(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("while True:", "for _ in range(99):"),
        (
            "            time.sleep(0.2)\n",
            "            time.sleep(0.2)\n            if gone(path):\n                raise\n",
        ),
    ],
)
def test_tries_that_have_a_limit_are_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "nothing limits the number of tries" not in summary(asleep(run, TRIES.replace(old, new), ("load", 6)))


POLITE = """\
def download(urls):
    done = 0
    while True:
        try:
            if done == len(urls):
                return done
            fetch(urls[done])
            done += 1
        except Throttled:
            time.sleep(1.5)
"""


@pytest.mark.parametrize(("done", "told"), [("0", True), ("57", False)])
def test_tries_of_which_some_came_through_go_on(done: str, told: bool, run: Path) -> None:
    """The look-alike: slow, and it sleeps where a server asks it to."""
    program = str(s.program_in(run, POLITE))
    box = stopped(parent().at(59_990).alloc(0x1000, 64), [("download", program, 10), ("main", program, 12)])
    found = in_native(run, box, native="time_sleep", values=(HeldValue("done", done, 0),))
    assert ("nothing limits the number of tries" in summary(found)) == told


MARK = """\
def prepare(cache):
    (cache / "_SUCCESS").touch()

def wait(cache):
    mark = cache / ".success"
    while not mark.exists():
        time.sleep(0.1)
"""


def test_file_of_a_name_that_no_line_writes_is_told_with_the_one_like_it(run: Path) -> None:
    found = asleep(run, MARK, ("wait", 7), ("main", 9))
    assert verdict(found) == ("hang", "likely")
    assert "It looks for `.success`, a name that no other line of the program has; line 2 (`(cache / '_SUCCESS')" in (
        summary(found)
    )
    assert advice(found).startswith("Use one name in both places, best a constant: the loop waits for `.success`")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"_SUCCESS"', '".success"'),
        ('"_SUCCESS"', '"vocabulary.txt"'),  # of another file
        ('(cache / "_SUCCESS").touch()', 'open("_SUCCESS")'),  # which is read
        ('cache / ".success"', "cache / NAME"),
        ("def prepare", 'NAME = ".success"\n\ndef prepare'),  # which another line may use
        ('"_SUCCESS"', '"success_2"'),  # the mark of the next stage
        (
            "        time.sleep(0.1)\n",
            "        time.sleep(0.1)\n    (cache / '_success').touch()\n",
        ),
    ],
)
def test_file_of_a_name_that_a_line_may_write_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    source = MARK.replace(old, new)
    if "_success'" in source:  # written behind the loop alone
        source = source.replace('"_SUCCESS"', '"vocabulary.txt"')
    line = source.splitlines().index("        time.sleep(0.1)") + 1
    assert "It looks for" not in summary(asleep(run, source, ("wait", line), ("main", 9)))


def test_name_that_is_only_alike_is_a_possible_reason(run: Path) -> None:
    source = MARK.replace('"_SUCCESS"', '"sucess"')
    assert verdict(asleep(run, source, ("wait", 7), ("main", 9))) == ("hang", "possible")


CALLBACKS = """\
class Renderer:
    def __init__(self):
        self.pool, self.views = None, {}
        self.pool = mp.Pool(2)

    def store(self, result):
        self.views[result[0]] = result

    def run(self, scenes):
        for scene in scenes:
            self.pool.apply_async(render, (scene,), callback=self.store)
        while len(self.views) < len(scenes):
            time.sleep(0.1)
""".replace("        self.pool, self.views = None, {}\n", "        self.views = {}\n")
IDLE: list[Frame] = [
    ("SimpleQueue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 365),
    ("worker", "/usr/lib/python3.11/multiprocessing/pool.py", 114),
]


def rendered(run: Path, source: str, *workers: Box) -> Report:
    program = str(s.program_in(run, f"import multiprocessing as mp\n{source}"))
    box = stopped(parent().at(59_990).alloc(0x1000, 64), [("Renderer.run", program, 14)])
    return in_native(run, box, *workers, native="time_sleep")


def test_callback_that_failed_tasks_do_not_call_is_told(run: Path) -> None:
    found = rendered(run, CALLBACKS)
    assert verdict(found) == ("hang", "possible")
    assert "Only store() changes `self.views`, the callback of line 12: apply_async() does not call it for a task " in (
        summary(found)
    )
    assert advice(found).startswith("Pass error_callback=print to apply_async() in line 12")


def test_workers_that_are_idle_have_done_all_tasks(run: Path) -> None:
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(60_030).signal_seen(15, 90, TIMEOUT)
    worker.crash(0, code=0, state=EXIT, python=IDLE, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)])
    found = rendered(run, CALLBACKS, worker)
    assert verdict(found) == ("hang", "likely")
    assert "All workers of the pool waited for a next task: none is left that may still call it" in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("callback=self.store)", "callback=self.store, error_callback=print)"),
        ("        self.views[result[0]] = result\n", "        print(result)\n"),
        ("mp.Pool(2)", "Pool(2)"),  # of threads, as far as is known
    ],
)
def test_callback_of_another_kind_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "the callback of line" not in summary(rendered(run, CALLBACKS.replace(old, new)))
