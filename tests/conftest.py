"""Set-up of every test."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytracer._garbage import without_collections
from pytracer.analyze import engine
from pytracer.analyze.rules.base import Description, Judgement, finding
from pytracer.report.job import Finding
from tests.support.facts import check_facts

# Under nohup, and in the background of a script, these are ignored, and children would inherit that: programs of the
# tests would not end by them, traced or not.
for _number, _action in (
    (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)
):  # fmt: skip
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _action)


# Reports would be as wide as this terminal, or as xdist says that its workers' is.
os.environ.pop("COLUMNS", None)

LEFT_OUT = ("full_matrix", "every_job", "every_row")
_ONE_IN = 4  # of the parameters that are not quick


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the package once: most tests start it in processes that keep no bytecode, each a third longer."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).resolve().parents[1] / "pytracer", quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Python's search for garbage goes through millions of objects that live as long as the tests: a third of the time
    of collecting them, and again in the tests.
    """
    with without_collections():
        found = yield
    gc.freeze()
    return found


@pytest.fixture(autouse=True, scope="session")
def every_sentence_has_its_fact() -> Iterator[None]:
    """Of each finding of each report that a test makes, the facts are checked."""
    made = finding

    def checked(rule: str, judgement: Judgement[Any], words: Description) -> Finding:
        found = made(rule, judgement, words)
        check_facts(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "finding", checked)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`quick(n)`: of the parameters of a test, n that are spread evenly stay in `make test`, the last first.

    Of the others a quarter stays in `make test-slow`, at least one; `make test-all` has them all.
    """
    tests = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("quick")
        if marker and not any(map(item.get_closest_marker, LEFT_OUT)):
            tests[item.nodeid.partition("[")[0], marker.args[0]].append(item)
    for (_, count), cells in tests.items():
        apart = max(1, len(cells) // count)
        # In steps of one more, so that of two crossed parameters each value has its turn.
        stay = {len(cells) - 1 - i * apart - i % apart for i in range(count)}
        others = [item for number, item in enumerate(cells) if number not in stay]
        for number, item in enumerate(others):
            item.add_marker("slow")
            if number % _ONE_IN:
                item.add_marker("every_parameter")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """`small_disk(nbytes)` mounts a tmpfs of that size; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(nbytes: int) -> Path:
        at = tmp_path / "small"
        at.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "none", str(at)], capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
        mounted.append(at)
        return at

    yield mount
    for at in mounted:
        subprocess.run(["umount", "-l", str(at)], check=False)
