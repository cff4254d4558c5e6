"""standstill: an event loop with nothing left to run, and what the source of its coroutines shows of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Frame

LIB = "/usr/lib/python3.11"
LOOP: list[Frame] = [
    ("EpollSelector.select", f"{LIB}/selectors.py", 468),
    ("BaseEventLoop._run_once", f"{LIB}/asyncio/base_events.py", 1884),
    ("Runner.run", f"{LIB}/asyncio/runners.py", 118),
]

NESTED = """\
class Worker:
    def __init__(self, count):
        self.limit = asyncio.Semaphore(count)

    async def sample(self, prompt):
        async with self.limit:
            return await generate(prompt)

    async def group(self, prompt):
        async with self.limit:
            return await asyncio.gather(*(self.sample(prompt) for _ in range(4)))

    async def run(self, prompts):
        return await asyncio.gather(*(self.group(item) for item in prompts))

asyncio.run(Worker(2).run(PROMPTS))
"""


def looped(run: Path, source: str, *, quiet: bool = True) -> Report:
    """The loop that the last line runs."""
    script = str(s.program_in(run, source))
    box = parent().at(500).alloc(0x1000, 64) if quiet else parent()
    return ended(run, stopped(box, [*LOOP, ("<module>", script, len(source.splitlines()))]))


@pytest.mark.parametrize(("quiet", "told"), [(True, "likely"), (False, "possible")])
def test_semaphore_that_is_asked_for_inside_of_itself_is_told(quiet: bool, told: str, run: Path) -> None:
    """More than possible only where the process is known to have done nothing for a while."""
    found = looped(run, NESTED, quiet=quiet)
    assert verdict(found) == ("hang", told)
    assert "Worker.group holds `self.limit` (line 10) while it awaits sample(), which takes it again (line 6)" in (
        summary(found)
    )
    assert "once as many tasks are inside as line 3 (`asyncio.Semaphore(count)`) admits" in summary(found)
    assert advice(found).startswith("Take `self.limit` in one of the two only")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("generate(prompt)", "self.reader.readline()"),
        ("generate(prompt)", "asyncio.sleep(30)"),
        ("class Worker", "import aiohttp\n\nclass Worker"),
    ],
)
def test_loop_that_may_wait_for_a_server_is_not_known_to_stand(old: str, new: str, run: Path) -> None:
    """The look-alike: fewer tasks than the Semaphore admits, and a slow server."""
    assert verdict(looped(run, NESTED.replace(old, new))) == ("hang", "possible")


def test_lock_of_asyncio_admits_no_task_twice(run: Path) -> None:
    found = looped(run, NESTED.replace("Semaphore(count)", "Lock()"))
    assert "takes it again (line 6): a Lock of asyncio cannot be taken twice by one task" in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("async with self.limit:\n            return await gen", "async with other:\n            return await gen"),
        ("            return await asyncio.gather(*(", "            return start(*("),  # it does not wait there
        ("return await generate(prompt)", "return await asyncio.wait_for(generate(prompt), 5)"),
        ("asyncio.Semaphore(count)", "Sluice(count)"),
    ],
)  # fmt: skip
def test_semaphore_that_is_not_asked_for_inside_of_itself_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes; of a limit around the innermost work, the inner `async with` still waits without one."""
    source = NESTED.replace(old, new)
    told = "takes it again" in summary(looped(run, source))
    assert told == ("wait_for" in new)


def test_thread_at_work_may_still_wake_the_loop(run: Path) -> None:
    """The look-alike."""
    script = str(s.program_in(run, NESTED))
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    stack = [*LOOP, ("<module>", script, 16)]
    others: dict[int, list[Frame]] = {7: [("read", script, 7)]}
    found = ended(run, box.crash(0, code=0, state=EXIT, python=stack, other_python=others, native=[(s.LIBC, 16)]))
    assert "takes it again" not in summary(found)


KEPT = """\
slots = asyncio.Semaphore(4)

async def sample(number):
    await slots.acquire()
    tokens = await generate(number)
    if len(tokens) > 24:
        return None
    slots.release()
    return tokens

async def main():
    await asyncio.gather(*(sample(item) for item in range(9)))

asyncio.run(main())
"""


def test_branch_that_does_not_give_a_semaphore_back_is_told(run: Path) -> None:
    found = looped(run, KEPT)
    assert "the `return` of line 7 in sample (below `if len(tokens) > 24`) leaves without `slots.release()`" in (
        summary(found)
    )
    assert advice(found).startswith("Take `slots` by `async with` in sample, in place of line 4 and line 8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return None\n", "        slots.release()\n        return None\n"),
        ("    slots.release()\n    return tokens\n", "    return tokens\n"),  # by somebody else, as far as is known
        ("        return None\n", "        tokens = tokens[:24]\n"),
    ],
)
def test_semaphore_that_is_given_back_on_each_way_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "leaves without" not in summary(looped(run, KEPT.replace(old, new)))


QUEUE = """\
async def embed(queue):
    while True:
        ids = await queue.get()
        if len(ids) == 0:
            continue
        work(ids)
        queue.task_done()

async def main():
    queue = asyncio.Queue()
    tasks = [asyncio.create_task(embed(queue)) for _ in range(2)]
    await fill(queue)
    await queue.join()
    for task in tasks:
        task.cancel()

asyncio.run(main())
"""


def test_item_that_a_branch_leaves_undone_is_told(run: Path) -> None:
    found = looped(run, QUEUE)
    assert "line 13 awaits `queue.join()`, and the `continue` of line 5 in embed (below `if len(ids) == 0`)" in (
        summary(found)
    )
    assert advice(found).startswith("Call `queue.task_done()` before the `continue` of line 5, too")


def test_taker_that_an_error_may_have_ended_is_looked_at(run: Path) -> None:
    source = QUEUE.replace("        if len(ids) == 0:\n            continue\n", "")
    found = looped(run, source)
    assert "line 11 awaits `queue.join()`; an error between line 3 and line 5 of embed would end that task" in (
        summary(found)
    )
    assert "`task.exception()` of those that are done()" in advice(found)
    assert verdict(found) == ("hang", "possible")


def test_taker_that_catches_its_errors_is_no_reason(run: Path) -> None:
    """The look-alike."""
    source = QUEUE.replace("        if len(ids) == 0:\n            continue\n        work(ids)\n",
                           "        try:\n            work(ids)\n        except OSError:\n            log()\n"
    )  # fmt: skip
    assert "awaits `queue.join()`" not in summary(looped(run, source))


ROUNDS = """\
class Trainer:
    def __init__(self):
        self.inputs = asyncio.Queue()
        self.results = asyncio.Queue()

    async def run(self):
        while True:
            rows = await self.inputs.get()
            self.results.put_nowait(step(rows))

def pack(rows, size):
    return [item for item in rows.split(size)]

async def train(trainer, rows, size):
    await trainer.results.join()
    for part in pack(rows, size):
        trainer.inputs.put_nowait(part)
    count = len(rows) // size
    for _ in range(count):
        result = await trainer.results.get()
        log(result)
        trainer.results.task_done()

async def main():
    trainer = Trainer()
    asyncio.create_task(trainer.run())
    for rows in collect():
        await train(trainer, rows, 32)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("len(rows) // size", "len(rows) // size", "rows.split(size)"),
        ("len(rows) // size", "int(len(rows) / size)", "rows.split(size)"),
        ("item for item in rows.split(size)", "rows[n : n + size] for n in range(0, len(rows), size)",
         "range(0, len(rows), size)"),
        ("in pack(rows, size)", "in enumerate(rows.split(size))", "rows.split(size)"),
    ],
)  # fmt: skip
def test_results_of_which_one_fewer_is_taken_than_there_are_parts_are_told(
    old: str, new: str, parts: str, run: Path
) -> None:
    found = looped(run, ROUNDS.replace(f" {old}", f" {new}").replace(f"[{old}", f"[{new}"))
    assert "line 15 awaits `trainer.results.join()`; line 18 takes only `len(rows) /" in summary(found)
    assert f"(`{parts}`) makes one part more of a rest: where `len(rows)` is no multiple of `size`" in summary(found)
    assert "round up at line 18 (`-(-len(rows) // size)`, math.ceil())" in advice(found)
    assert "would end that task" not in summary(found)
    assert verdict(found) == ("hang", "possible")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("len(rows) // size", "-(-len(rows) // size)"),
        ("len(rows) // size", "(len(rows) + size - 1) // size"),
        ("len(rows) // size", "len(pack(rows, size))"),
        ("[item for item in rows.split(size)]", "[rows[n * size:][:size] for n in range(len(rows) // size)]"),
        ("rows.split(size)", "rows.split(64)"),
        ("rows.split(size)]", "rows.split(size) if len(item) == size]"),
        ("rows.split(size)]", "rows.split(size)][:-1]"),
        ("in rows.split(size)", "in np.split(rows, size)"),
        ("item in rows.split(size)", "item in range(0, len(rows) - size + 1, size)"),
        ("    for part in pack", "    rows = rows[: len(rows) // size * size]\n    for part in pack"),
        ("    count = ", "    assert len(rows) % size == 0\n    count = "),
        ("        trainer.inputs", "        if len(part) < size:\n            break\n        trainer.inputs"),
        ("len(rows) //", "len(others) //"),
    ],
)
def test_results_that_are_all_taken_are_no_reason_nor_an_error_that_would_end_the_program(
    old: str, new: str, run: Path
) -> None:
    """The look-alikes: the taker is awaited, so that its own error would not stay unseen."""
    found = looped(run, ROUNDS.replace(old, new))
    assert "rounded down" not in summary(found) and "would end that task" not in summary(found)


def test_taker_that_never_ends_is_not_to_be_awaited(run: Path) -> None:
    source = QUEUE.replace("    await queue.join()\n    for task in tasks:\n        task.cancel()\n",
                           "    await asyncio.gather(*tasks)\n")  # fmt: skip
    found = looped(run, source)
    assert "line 13 awaits embed, which takes from `queue` for ever (line 3): nothing leaves its loop" in summary(found)
    assert advice(found).startswith("Let the loop end at a mark: put `None` into `queue` behind the last item")


def test_gather_that_an_exception_of_the_program_ends_may_be_slow(run: Path) -> None:
    """The look-alike: the line that fills the queue raises at its end."""
    gathers = "    try:\n        await asyncio.gather(*tasks)\n    except Done:\n        pass\n"
    source = QUEUE.replace("    await queue.join()\n    for task in tasks:\n        task.cancel()\n", gathers)
    assert "for ever" in summary(looped(run, source))
    source = f"async def fill(queue):\n    await queue.put(1)\n    raise Done()\n\n{source}"
    assert "for ever" not in summary(looped(run, source))


def test_wait_for_the_first_of_several_ends_with_that(run: Path) -> None:
    """The look-alike."""
    first = "asyncio.wait([*tasks, embed(queue)], return_when=asyncio.FIRST_COMPLETED)"
    source = QUEUE.replace("queue.join()", first).replace("    for task in tasks:\n        task.cancel()\n", "")
    assert "for ever" not in summary(looped(run, source))


def test_taker_that_ends_at_a_mark_may_be_awaited(run: Path) -> None:
    """The look-alike."""
    source = QUEUE.replace("            continue\n", "            break\n").replace(
        "queue.join()", "asyncio.gather(*tasks)"
    )
    assert "for ever" not in summary(looped(run, source))


CIRCLE = """\
class Pair:
    def __init__(self):
        self.updated, self.rollouts = asyncio.Event(), asyncio.Queue()
        self.updated = asyncio.Event()
        self.rollouts = asyncio.Queue()

    async def act(self):
        await self.updated.wait()
        await self.rollouts.put(play())

    async def learn(self):
        rows = await self.rollouts.get()
        self.updated.set()

    async def run(self):
        await asyncio.gather(self.act(), self.learn())

asyncio.run(Pair().run())
""".replace("        self.updated, self.rollouts = asyncio.Event(), asyncio.Queue()\n", "")


def test_coroutines_that_wait_for_each_other_are_told(run: Path) -> None:
    found = looped(run, CIRCLE)
    assert "Pair.act awaits `self.updated.wait()` (line 7), which only line 12 in Pair.learn ends" in summary(found)
    assert "which only line 8 in Pair.act ends: each waits for the other" in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        rows = await self.rollouts.get()\n        self.updated.set()\n",
         "        self.updated.set()\n        rows = await self.rollouts.get()\n"),
        ("    async def run(self):\n", "    async def run(self):\n        self.updated.set()\n"),
    ],
)  # fmt: skip
def test_coroutines_of_which_one_can_begin_are_no_circle(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "each waits for the other" not in summary(looped(run, CIRCLE.replace(old, new)))
