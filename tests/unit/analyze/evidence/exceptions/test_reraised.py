"""Texts of exceptions that hold the traceback of another one: what is taken from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.evidence.exceptions.reraised import library_reason, reason_within, reraised
from pytracer.render.text import render_text
from pytracer.report.job import ExceptionReport, HandledExceptionReport, PythonFrame
from tests.support import scenarios as s
from tests.support.deaths import summary
from tests.support.synth import Box

LIBRARY = '  File "/v/lib/python3.11/site-packages/torch/planner.py", line 495, in plan\n    raise\n'
OWN = '  File "/srv/load.py", line 7, in rows\n    return table[key]\n           ~~~~~^^^^^\n'
KIND = "torch.distributed.checkpoint.api.CheckpointException"
HEAD = "Traceback (most recent call last):"
RANKS = (
    "CheckpointException ranks:dict_keys([0, 1])\n"
    f"{HEAD} (RANK 0)\n{LIBRARY}RuntimeError: Missing key in checkpoint state_dict: model.score.\n"
    f"{HEAD} (RANK 1)\n{LIBRARY}KeyError: 'other'\n"
)
CHAIN = (
    f"CheckpointException ranks:dict_keys([2])\n{HEAD} (RANK 2)\n{LIBRARY}KeyError: 'a'\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    f"{HEAD}\n{LIBRARY}ValueError: no plan\nwith two lines\n"
)


def of(message: str) -> ExceptionReport:
    """The exception with that text."""
    return ExceptionReport(type=KIND, message=message)


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (RANKS, "RuntimeError", "Missing key in checkpoint state_dict: model.score."),
        (f"On WorkerInfo(id=1):\n{HEAD}\n{LIBRARY}ValueError: bad\n\tmore\n", "ValueError", "bad\n\tmore"),
    ],
)
def test_reason_is_the_last_line_of_the_traceback(message: str, kind: str, reason: str) -> None:
    """Of several ranks' the first; nothing of the program ran there."""
    found = reason_within(of(message))
    assert (found.type, found.message) == (kind, reason)
    assert reraised(of(message)) is None


@pytest.mark.parametrize(
    "message",
    [
        "no data",
        f"Look for '{HEAD}' in the log",
        f"CheckpointException\n{HEAD} (RANK 0)\n{LIBRARY}",  # cut before the traceback ended
        f"Traceback of TorchScript (most recent call last):\n{LIBRARY}RuntimeError: x\n",
    ],
)
def test_other_texts_are_left_as_they_are(message: str) -> None:
    """The look-alikes."""
    exception = of(message)
    assert reason_within(exception) is exception and reraised(exception) is None


def test_line_of_the_program_counts_where_the_traceback_has_one() -> None:
    """A planner of its own; the look-alike: `raise RuntimeError(traceback.format_exc())` is only a text."""
    exception = of(f"CheckpointException ranks:dict_keys([1])\n{HEAD} (RANK 1)\n{OWN}KeyError: 'cat'\n")
    first = reraised(exception)
    assert first is not None and first.frame is not None and first.frame.line == 7
    assert (first.words, first.where) == ("KeyError: 'cat'", "in rank 1")
    assert reason_within(exception) is exception
    other = of(f"loading failed:\n{HEAD}\n{OWN}KeyError: 'cat'\n")
    assert reraised(other) is None and reason_within(other) is other


def test_line_of_the_program_counts_where_cython_raised_below_it() -> None:
    """A frame of Cython has a relative path, that of numpy's own source, and is no line of the program."""
    text = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    text += '  File "/home/u/train.py", line 20, in __getitem__\n    rng = np.random.RandomState(seed=seed + index)\n'
    text += '  File "_mt19937.pyx", line 182, in numpy.random._mt19937.MT19937._legacy_seeding\n'
    found = reraised(
        ExceptionReport(type="ValueError", message=f"{text}ValueError: Seed must be between 0 and 2**32 - 1")
    )
    assert found is not None and found.frame is not None and found.innermost is not None
    assert (found.frame.line, found.innermost.file) == (20, "_mt19937.pyx")


def test_of_a_chain_the_last_one_counts() -> None:
    """With all lines of its message."""
    found = reason_within(of(CHAIN))
    assert (found.type, found.message) == ("ValueError", "no plan\nwith two lines")


def test_report_names_the_reason_and_the_program_s_line(run: Path) -> None:
    """The exception's own text has 14 lines; its last one is what the reader needs."""
    frames = [("plan", "/v/lib/python3.11/site-packages/torch/x.py", 5), ("main", s.SCRIPT, 9)]
    report = build_report(s.load(run, Box(pid=101, ppid=99).exception(KIND, RANKS, frames).exit(1)))
    assert "CheckpointException: RuntimeError: Missing key in checkpoint state_dict: model.score at " in summary(report)
    text = render_text(report)
    assert "more lines" in text and "KeyError: 'other'" in text


def test_error_of_a_library_that_has_the_facts() -> None:
    """Look-alikes: a text with facts of its own, a lookup that failed, one of the program's own lines."""
    library = PythonFrame(function="_compile", file="/x/site-packages/torch/_dynamo/convert_frame.py", line=1)
    own = PythonFrame(function="main", file="/x/train.py", line=2)

    def reason(message: str, kind: str, stack: list[PythonFrame]) -> str | None:
        before = HandledExceptionReport(type=kind, message="recompile_limit is 8", python_stack=stack)
        found = library_reason(
            ExceptionReport(type="Limit", message=message, python_stack=[library, own], context=[before])
        )
        return found.type if found is not None else None

    assert reason("Hard failure", "Unsupported", [library]) == "Unsupported"
    assert reason("Hard failure of 'f'", "Unsupported", [library]) is None
    assert reason("Hard failure", "KeyError", [library]) is None
    assert reason("Hard failure", "Unsupported", [library, own]) is None


def test_function_that_the_recorder_wraps_is_called_by_torch() -> None:
    """A worker_init_fn without a parameter: the recorder's own line is none of the program or of torch."""
    text = "Caught TypeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    text += '  File "/v/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 306, in _worker_loop\n'
    text += (
        '    init_fn(worker_id)\n  File "/v/lib/python3.11/site-packages/pytracer/record/torch/dataloader_workers.py"'
    )
    text += ", line 93, in init_and_record\n    return init(*args)\n"
    text += "TypeError: seed_worker() takes 0 positional arguments but 1 was given\n"
    found = reraised(ExceptionReport(type="TypeError", message=text))
    assert found is not None and found.frame is not None and found.innermost is not None
    assert (found.frame.line, found.innermost.line) == (306, 306)
    assert found.message == "seed_worker() takes 0 positional arguments but 1 was given"
