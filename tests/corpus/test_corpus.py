"""Crashes that users reported, run below the launcher: class, culprit, headline and next step.

cases.toml has those that rules were made for, ranks.toml failures among ranks, the others those that were judged before
any rule knew them. Cases without expected words were measured only; they are not run here.
`root`: only root may do what the program does. `or`: what a race may end in as well; `survives`: it may end well, too,
and is run again. `by_processor`: on some it always ends well. `threads`: of OpenMP, where two race.
`hash_seed`: of text, where the order of a set is the reason.
`a|b` in words: which of them is known is up to what the fault overwrote, or to a busy machine.
Of the sets after the first, one in twenty-four is in `make test-slow`, but none that stands still until its time limit;
of all, none that needs an extension: tests/crash has such deaths, smaller.

The programs are as in the issues, re-made for one version of torch. What really happened was found without pytracer.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import ProcessReport, Report
from tests.conditions import needs_capstone, needs_native
from tests.support.cli import ROOT
from tests.support.crash import Ended, environment, healthy, torchrun, traced_run
from tests.support.debug_information import debug_information_is_parsed_once

tomllib = pytest.importorskip("tomllib", reason="Python has it since 3.11")

__all__ = ["debug_information_is_parsed_once"]

pytestmark = [pytest.mark.slow, needs_native, needs_capstone]

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
_FIRST = "cases.toml"


def _cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Those whose words are expected, the first set first; each with the name of its file."""
    for path in sorted(HERE.glob("*.toml"), key=lambda path: (path.name != _FIRST, path.name)):
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            if "headline" in case and not case.get("measured"):
                yield path.name, case


CASES = list(_cases())
_FLAGS = {
    "realext": ["-O1", "-g"],
    "userops": ["-O1", "-g", "-fopenmp"],
    "secondops": ["-O1", "-g"],
}  # as the programs have them
_NEEDS = {"extension": "realext", "userops": "userops", "secondops": "secondops"}
EXTENSIONS = ROOT / "build" / "corpus-extensions"  # kept: torch's tools take a minute to build one

VARIABLES = {
    "OMP_NUM_THREADS": "2",
    "TORCH_EXTENSIONS_DIR": str(EXTENSIONS),
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


def _param(place: int, name: str, case: dict[str, Any]) -> Any:
    marks = [pytest.mark.xfail(reason=case["xfail"], strict=not case.get("by_chance"))] if "xfail" in case else []
    takes_minutes = "xfail" in case or "needs" in case or (name != _FIRST and "limit_s" in case)
    if takes_minutes or (name != _FIRST and place % 24):
        marks.append(pytest.mark.every_case)
    return pytest.param(case, id=case["id"], marks=marks)


def command_of(case: dict[str, Any], program: Path) -> list[str]:
    """As its users start it."""
    ranks = case.get("ranks", 2)
    command = torchrun(program, ranks=ranks) if case["launcher"] == "torchrun" else [sys.executable, str(program)]
    return ["timeout", "-s", "TERM", str(case["limit_s"]), *command] if "limit_s" in case else command


@pytest.mark.timeout(900)  # the first one that needs the extension builds it
@pytest.mark.parametrize("case", [_param(n, *item) for n, item in enumerate(CASES)])
def test_reported_crash_is_explained(case: dict[str, Any], tmp_path: Path) -> None:
    """The class that really happened, at the line where it did, in words that name the cause and the next step."""
    if "needs" in case:
        _build_extension(_NEEDS[case["needs"]])
    if case.get("root") and os.geteuid() != 0:
        pytest.skip("it mounts a file system of its own: only root may")
    classes = case["class"] if isinstance(case["class"], list) else [case["class"]]

    own = {"OMP_NUM_THREADS": "threads", "PYTHONHASHSEED": "hash_seed"}
    variables = VARIABLES | {name: str(case[key]) for name, key in own.items() if key in case}

    def once(name: str) -> Ended:
        return traced_run(
            *command_of(case, PROGRAMS / f"{case['id']}.py"), run=tmp_path / name, options=(), **variables
        )

    done = once("run") if "abort" in classes else healthy(lambda: once("run"), lambda: once("again"))
    if case.get("survives") and done.status == 0:
        done = once("another")
    if case.get("by_processor") and done.status == 0:
        pytest.skip("the kernel that torch takes on this processor accepts it, traced or not")
    verdict = done.report.verdict
    assert verdict is not None
    otherwise = case.get("or", {})
    assert verdict.class_ in (*classes, otherwise.get("class")), verdict.summary
    _line_is_known(case, done.report)
    expected = otherwise if verdict.class_ not in classes else case
    for word in expected["headline"]:
        assert any(words in (verdict.summary or "") for words in word.split("|")), verdict.summary
    for word in expected["next"]:
        assert _is_said(word, verdict.advice or ""), verdict.advice


def _is_said(word: str, advice: str) -> bool:
    """A line of the file that the headline names is `line 7` there."""
    place = re.fullmatch(r"[\w.]+\.py:(\d+)", word)
    is_line = place is not None and re.search(rf"\bline {place[1]}\b", advice) is not None
    return is_line or any(words in advice for words in word.split("|"))


def _build_extension(name: str) -> None:
    """By torch's tools, as the programs do: then these find it. One at a time: they wait for each other's lock file."""
    if shutil.which("ninja", path=VARIABLES["PATH"]) is None:
        pytest.skip("torch's tools build extensions with ninja: pip install ninja")
    EXTENSIONS.mkdir(parents=True, exist_ok=True)
    linked = [flag for flag in _FLAGS[name] if flag == "-fopenmp"]
    source = str(PROGRAMS / f"{name}.cpp")
    words = f"load({name!r}, [{source!r}], extra_cflags={_FLAGS[name]!r}, extra_ldflags={linked!r})"
    command = [sys.executable, "-c", f"from torch.utils.cpp_extension import load; {words}"]
    with (EXTENSIONS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (EXTENSIONS / name / "lock").unlink(missing_ok=True)  # of an interrupted build: the next one would wait
        subprocess.run(command, env=environment(**VARIABLES), check=True, stdout=subprocess.DEVNULL)


def _line_is_known(case: dict[str, Any], report: Report) -> None:
    """The culprit's innermost line of the program; of ranks that did not come, or stood still, also in its words."""
    verdict = report.verdict
    assert verdict is not None
    culprits = [
        process for process in report.processes or () if process.pid == verdict.pid
    ]  # none where ranks disagree
    if "line" in case:
        words = re.findall(r"[\w.]+:\d+", f"{verdict.summary} {verdict.advice}")
        lines = [line for process in culprits for line in _own_lines(case, process)]
        expected = case["line"] if isinstance(case["line"], list) else [case["line"]]
        assert {f"{case['id']}.py:{line}" for line in expected} & {*lines, *words}, (lines, words)
    if "native" in case:
        stacks = [frame for process in culprits for frame in process.native_stack or ()]
        frames = [f"{frame.function} {frame.image}" for frame in stacks]  # libraries without symbols have a name
        assert re.search(case["native"], "\n".join(frames)), frames


def _own_lines(case: dict[str, Any], process: ProcessReport) -> Iterator[str]:
    """The innermost line of the program in each thread: a kernel may die on a thread of OpenMP's, which runs none."""
    for stack in (process.python_stack, *(thread.python_stack for thread in process.threads or ())):
        lines = [f"{Path(frame.file or '').name}:{frame.line}" for frame in stack or ()]
        yield from [line for line in lines if line.startswith(f"{case['id']}.py:")][:1]
