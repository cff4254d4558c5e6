"""A few of the crashes with known cause, chosen so that most pairs of error, memory, thread, access and launcher occur.

`make test-generated` runs all of them; docs/measurements/calibration.md has what came out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conditions import needs_capstone, needs_compiler, needs_native
from tests.generated.generator import LAUNCHERS, THREADS, Program, distinct, generate, sample
from tests.generated.judge import Judged, judge
from tests.generated.runner import Runner, build
from tests.support.cli import ROOT
from tests.support.debug_information import debug_information_is_parsed_once

__all__ = ["debug_information_is_parsed_once"]

PROGRAMS = 40


@pytest.fixture(scope="module")
def chosen() -> list[Program]:
    return sample(list(distinct(range(2100))), PROGRAMS)


@pytest.fixture(scope="module")
def judged(
    chosen: list[Program], tmp_path_factory: pytest.TempPathFactory, debug_information_is_parsed_once: None
) -> Iterator[list[Judged]]:
    with Runner(tmp_path_factory.mktemp("generated"), build(ROOT / "build" / "generated" / "libraries")) as runner:
        yield [judge(program, runner.run(program)) for program in chosen]


def test_seed_is_always_the_same_program() -> None:
    """And 2,000 of them differ in more than their number."""
    assert generate(17) == generate(17)
    assert len(list(distinct(range(2100)))) >= 2000


def test_sample_has_every_thread_and_launcher(chosen: list[Program]) -> None:
    """The values of the two short axes, each several times."""
    assert {program.thread for program in chosen} == set(THREADS)
    assert {program.launcher for program in chosen} == set(LAUNCHERS)


@pytest.mark.slow
@needs_native
@needs_capstone
@needs_compiler
def test_nothing_is_wrong_that_is_called_certain_or_likely(judged: list[Judged]) -> None:
    """Class, culprit, storage, Python line and thread."""
    assert [item for item in judged if item.wrong and item.confidence in ("certain", "likely")] == []


@pytest.mark.slow
@needs_native
@needs_capstone
@needs_compiler
def test_class_is_right_in_seventeen_of_twenty_programs(judged: list[Judged]) -> None:
    """In all 2,000 it is more often; of these few the hard ones are a larger part.

    Seeds 1, 26 and 153 leave nothing by which it could be known, 187 is possible and wrong; 231 and 998 end in another
    way by chance: 36 and 35 of 40 in six runs.
    """
    died = [item for item in judged if item.class_is != "nothing"]
    assert len(died) >= len(judged) - 2
    assert sum(item.class_is == "right" for item in died) >= 0.85 * len(died), [
        i for i in died if i.class_is != "right"
    ]
