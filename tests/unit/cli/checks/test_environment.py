"""`pytracer doctor` about shared memory and limits: containers and shells set both."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytracer.cli.checks import environment
from pytracer.cli.checks.answer import LIMITED, WORKS
from tests.support.cli import clean_environment


@pytest.mark.parametrize(
    ("total", "free", "word"),
    [(64 << 20, 64 << 20, "64 MiB: DataLoader"), (8 << 30, 1 << 20, "is full"), (8 << 30, 8 << 30, "8.0 GiB, 8.0")],
)
def test_small_or_full_shared_memory_is_a_warning(total: int, free: int, word: str) -> None:
    """64 MiB is the default of containers."""
    check = environment.shared_memory(total, free)
    assert word in check.detail
    assert (check.result == LIMITED) == bool(check.next)


ROOMY = {"stack": 8 << 20, "file": -1, "memory": -1, "signals": 90000}


@pytest.mark.parametrize(
    ("changed", "overcommit", "word"),
    [
        ({"stack": -1}, 0, "no end"),
        ({"file": 4096}, 0, "4096 bytes only"),
        ({"memory": 4 << 30}, 0, "limited to 4.0 GiB"),
        ({"signals": 0}, 0, "no deadline"),
        ({}, 2, "overcommit_memory is 2"),
    ],
)
def test_limits_that_change_a_death_are_named(changed: dict[str, int], overcommit: int, word: str) -> None:
    """Each by itself; without one, the answer is that there is space."""
    check = environment.limits({**ROOMY, **changed}, overcommit)
    assert check.result == LIMITED
    assert word in check.detail
    assert environment.limits(ROOMY, 0).result == WORKS


def test_unlimited_stack_of_a_real_child_is_seen() -> None:
    """`ulimit -s unlimited` in a shell, where the hard limit allows it."""
    code = "from pytracer.cli.checks import environment; print(environment.check_limits().detail)"
    script = f'ulimit -s unlimited 2>/dev/null || exit 3; exec {sys.executable} -c "{code}"'
    done = subprocess.run(["sh", "-c", script], env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("the hard limit of stacks is finite here: ulimit -Hs")
    assert "the main stack has no end" in done.stdout, done.stderr
