"""NaN weights whose last batch had one element, by the memory of the lines that used it; and what is likeliest."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.decode.types.snapshot import CallSite, Moment, Storage
from pytracer.decode.types.snapshot import PythonFrame as Frame
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport, WarningReport

SOURCE = """def update(policy, gain, old, a):
    gain = (gain - gain.mean()) / {spread}
    ratio = torch.exp(torch.log(policy.pi(a).gather(1, a)) - torch.log({old}))
    surrogate = {surrogate}
    loss = -surrogate.mean()
    loss.backward()
    optimizer.step()
def act(policy, seen):
    return Categorical(policy.pi(seen))
optimizer = torch.optim.Adam(policy.parameters())
act(policy, seen)
"""


class Told(NamedTuple):
    """For the headline, and what to do."""

    subject: str
    words: str


def told(
    folder: Path,
    *storages: tuple[int, int, int],
    spread: str = "(gain.std() + 1e-5)",
    old: str = "old_prob",
    surrogate: str = "ratio * gain",
    warned: tuple[tuple[int, str], ...] = (),
) -> Told:
    """Of act(), with NaN weights. `storages`: epoch, line and bytes of what was allocated. `warned`: at these lines."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(spread=spread, old=old, surrogate=surrogate), encoding="utf-8")
    made = tuple(
        Storage(at, size, "freed", Moment(epoch, at, None), CallSite(Frame("update", str(file), line)), 1)
        for at, (epoch, line, size) in enumerate(storages)
    )
    snapshot: Any = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, named={}, rank=None, facts=(), step=3, storages=made
    )
    frames = [
        PythonFrame(file="/x/site-packages/torch/distributions/distribution.py", function="__init__", line=77),
        PythonFrame(function="act", file=str(file), line=9),
        PythonFrame(function="<module>", file=str(file), line=11),
    ]
    values = [
        VariableReport(name="seen", value="[4] float32"),
        VariableReport(name="parameters of policy", value="6 of 6 with nan"),
    ]
    message = "Expected parameter probs of distribution Categorical to satisfy Simplex(), but found: tensor([nan, nan])"
    before = [WarningReport("RuntimeWarning", text, str(file), line) for line, text in warned]
    report = ExceptionReport(type="ValueError", message=message, variables=values, warnings=before)
    found = explained(snapshot, report, frames)
    assert found.failure is None, found.failure
    return Told(found.subject or "", found.words or "")


ONE = ((1, 2, 80), (1, 4, 80), (2, 2, 4), (2, 2, 8), (2, 4, 4), (2, 4, 4))


def test_batch_of_one_is_known_by_the_memory_of_the_round(tmp_path: Path) -> None:
    """Nothing else is said then."""
    found = told(tmp_path, *ONE)
    assert found.subject.endswith(
        "; line 2 takes `gain.std()` of a single element, as the last batch had one, which is NaN"
    )
    assert "leave such a batch out" in found.words
    assert "log" not in found.words


@pytest.mark.parametrize(
    ("storages", "more"),
    [
        ((), {}),
        (((2, 2, 4), (2, 4, 4), (3, 2, 80), (3, 4, 80), (3, 4, 80)), {}),
        (((2, 2, 4), (2, 2, 8), (2, 4, 8), (2, 4, 8)), {}),
        (((2, 2, 4), (2, 4, 4)), {}),
        (ONE, {"surrogate": "(ratio * gain).sum(1)"}),
        (ONE, {"surrogate": "(ratio * gain).bfloat16()"}),
    ],
    ids=["nothing", "an earlier round", "two elements", "one storage", "a sum", "another type"],
)
def test_spread_of_a_batch_is_likelier_than_the_log_of_a_probability(
    storages: tuple[tuple[int, int, int], ...], more: dict[str, Any], tmp_path: Path
) -> None:
    """Where the size of the last batch is not known; both logs of a line are one sentence."""
    found = told(tmp_path, *storages, **more)
    assert found.subject.endswith(
        "; most likely line 2 made it: it takes `gain.std()`, which is NaN for a single element"
    )
    assert "takes the logs of `policy.pi(a).gather(1, a)` and `old_prob`" in found.words
    assert found.words.count("clamp") == 1
    assert "as the last batch had one" not in found.words


@pytest.mark.parametrize(
    "more", [{"old": "area"}, {"spread": "(gain.std(unbiased=False) + 1e-5)"}], ids=["no probability", "biased"]
)
def test_nothing_is_likelier_where_other_causes_are_as_likely(more: dict[str, Any], tmp_path: Path) -> None:
    """The log of what is no probability, or a spread that is 0 for one element."""
    assert "most likely" not in told(tmp_path, **more).subject


def test_line_that_had_warned_comes_first_of_several(tmp_path: Path) -> None:
    """The area is no probability, so that nothing else tells the two lines apart."""
    assert told(tmp_path, old="area").subject.endswith("lines 2 and 3 can make it")
    said = "divide by zero encountered in log"
    found = told(tmp_path, old="area", warned=((3, said),))
    told_of = f'line 3, which had warned before ("{said}"), takes the logs of `policy.pi(a)'
    assert f"; {told_of}" in found.subject and "line 2" not in found.subject
    assert found.words.index(f"Look first at {told_of}") < found.words.index("Line 2 takes")


def test_line_that_had_warned_is_looked_at_first_where_no_expression_is_known_to_make_it(tmp_path: Path) -> None:
    """Not by a warning of something else, by one of a library, nor where many lines have warned."""
    text = "std(): degrees of freedom is <= 0. Correction should be less. (Triggered internally at /pytorch/a.cpp:3.)"
    found = told(tmp_path, spread="2", old="0 * a + 1", surrogate="gain", warned=((2, text),))
    assert found.subject.endswith('; line 2 had warned before: "std(): degrees of freedom is <= 0"')
    assert found.words.startswith("Look first at line 2, of which Python had warned. The weights")
    many = tuple((line, text) for line in (2, 3, 4))
    for warned in (((2, "the array is not writable"),), many):
        found = told(tmp_path, spread="2", old="0 * a + 1", surrogate="gain", warned=warned)
        assert "warned" not in found.subject + found.words


@pytest.mark.parametrize(
    "row",
    ["print(adv / 0)", "log.info('%s', adv / 0)", "gain = np.nan_to_num(adv / 0)"],
)
def test_line_whose_numbers_are_only_shown_or_made_finite_is_not_looked_at(row: str, tmp_path: Path) -> None:
    """What a log has of 0 / 0 is no part of the loss."""
    text = "invalid value encountered in divide"
    rows = SOURCE.splitlines()
    rows[4] = rows[4][: len(rows[4]) - len(rows[4].lstrip())] + row
    source, old = SOURCE, {"spread": "2", "old": "0 * a + 1", "surrogate": "gain"}
    globals()["SOURCE"] = "\n".join(rows) + "\n"
    try:
        found = told(tmp_path, **old, warned=((5, text),))
    finally:
        globals()["SOURCE"] = source
    assert "warned" not in found.subject + found.words
