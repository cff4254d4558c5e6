"""Counts how often torchrun, torch's Flight Recorder analyzer and pytracer blame the right rank of a failed job.

Each run of a scenario of tests/distributed is two jobs: one without pytracer, for torchrun's table of failures and for
Flight Recorder dumps, and one under `pytracer run`. Their output is kept in --keep DIR; jobs found there are not
repeated.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pytracer.analyze.engine import build_report  # noqa: E402
from pytracer.cli.flight import write_flight_recorder  # noqa: E402
from pytracer.decode.job.merge import load_job  # noqa: E402
from pytracer.report.job import Report  # noqa: E402
from tests.distributed.jobs import blamed, traced, untraced  # noqa: E402
from tests.distributed.scenarios import WRONG, Scenario  # noqa: E402
from tests.support.machine import machine  # noqa: E402

NOTHING = "nothing"
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?\brank\s*:\s*(\d+)", re.DOTALL)
_CULPRIT = re.compile(r"Culprit rank (\d+)")
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")

PAGE = ROOT / "docs" / "guide" / "who-died-first.md"
END = "<!-- attribution: end -->"
PART = """<!-- attribution: begin (scripts/attribution.py --runs {runs} --write) -->

Each job was run {runs} times. {totals}

On {machine}.

{table}

"""


class Cell:
    """The answers of one tool in all runs of one scenario. An answer is words and whether they are right."""

    def __init__(self, answers: Sequence[tuple[str, bool]]) -> None:
        self.right = sum(right for _, right in answers)
        self.total = len(answers)
        self._wrong = Counter(words for words, right in answers if not right)

    def __str__(self) -> str:
        if not self.total:
            return "-"
        wrong = ", ".join(f"{words} ({count})" for words, count in self._wrong.most_common())
        return f"{self.right}/{self.total}" + (f": {wrong}" if wrong else "")


def main() -> int:
    """Runs missing jobs, prints the table, writes it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4, metavar="N", help="how often each scenario is run")
    parser.add_argument("--keep", type=Path, default=ROOT / "runs" / "attribution", metavar="DIR")
    parser.add_argument("--only", default="", metavar="WORD", help="scenarios whose name holds this")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="jobs at a time")
    parser.add_argument("--untraced", action="store_true", help="run the jobs without pytracer only")
    parser.add_argument("--write", action="store_true", help="write the table into docs/guide/who-died-first.md")
    options = parser.parse_args()
    scenarios = [s for s in WRONG if s.start != "spawn" and options.only in str(s)]
    keep = options.keep.resolve()
    todo = [(act, s, _place(keep, s, run)) for run in range(options.runs) for s in scenarios for act in _acts(options)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda item: item[0](item[1], item[2]), todo))
    rows = [_row(s, [_place(keep, s, run) for run in range(options.runs)]) for s in scenarios]
    table = _markdown(rows)
    print(f"{table}\n\n{_totals(rows)}")
    if options.write:
        _write(PART.format(runs=options.runs, totals=_totals(rows), machine=machine(), table=table))
    return 0


def _write(part: str) -> None:
    head, found, rest = PAGE.read_text(encoding="utf-8").partition("<!-- attribution: begin")
    _, closed, rest = rest.partition(END)
    if not found or not closed:
        sys.exit(f"{PAGE} has no markers for the table")
    PAGE.write_text(head + part + END + rest, encoding="utf-8")


def _acts(options: argparse.Namespace) -> tuple[Callable[[Scenario, Path], None], ...]:
    return (_run_untraced,) if options.untraced else (_run_untraced, _run_traced)


def _place(keep: Path, scenario: Scenario, run: int) -> Path:
    return keep / f"{scenario}-{scenario.victim}" / str(run)


def _run_untraced(scenario: Scenario, place: Path) -> None:
    if (place / "untraced.json").exists():
        return
    dumps = place / "dumps"
    shutil.rmtree(dumps, ignore_errors=True)
    dumps.mkdir(parents=True)
    done = untraced(scenario, place / "none", FLIGHT_RECORDER_DUMPS=str(dumps))
    text = json.dumps({"status": done.status, "stderr": done.stderr})
    (place / "untraced.json").write_text(text, encoding="utf-8")
    print(f"{scenario} {place.name}: without pytracer", file=sys.stderr)


def _run_traced(scenario: Scenario, place: Path) -> None:
    if (place / "traced.json").exists():
        return
    for name in ("run", "again"):
        shutil.rmtree(place / name, ignore_errors=True)
    done = traced(scenario, place / "run")
    text = json.dumps({"status": done.status, "run": done.run.name})
    (place / "traced.json").write_text(text, encoding="utf-8")
    print(f"{scenario} {place.name}: below pytracer run", file=sys.stderr)


def _row(scenario: Scenario, places: Sequence[Path]) -> tuple[Scenario, list[Cell]]:
    plain = [place for place in places if (place / "untraced.json").exists()]
    recorded = [place for place in places if (place / "traced.json").exists()]
    runs = [place / json.loads((place / "traced.json").read_text(encoding="utf-8"))["run"] for place in recorded]
    return scenario, [
        Cell([_of_torchrun(scenario, place) for place in plain]),
        Cell([_of_analyzer(scenario, place / "dumps", "dump_") for place in plain]),
        Cell([_of_analyzer(scenario, _exported(run), "nccl_trace_rank_") for run in runs]),
        Cell([_of_pytracer(scenario, build_report(load_job(run))) for run in runs]),
    ]


def _of_torchrun(scenario: Scenario, place: Path) -> tuple[str, bool]:
    stderr = json.loads((place / "untraced.json").read_text(encoding="utf-8"))["stderr"]
    named = [int(rank) for rank in _ROOT_CAUSE.findall(stderr)]
    return "+".join(map(str, named)) or NOTHING, bool(named) and {*named} == {*scenario.guilty}


def _of_analyzer(scenario: Scenario, dumps: Path, prefix: str) -> tuple[str, bool]:
    words = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(dumps), "-p", prefix]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    if "no files loaded" in said:
        return "no dumps", False
    if done.returncode != 0:
        return f"cannot run: {said.splitlines()[-1][:60].split('(')[0].split(':')[0]}", False
    for line in said.splitlines():
        culprits, missing = _CULPRIT.findall(line), _MISSING.search(line)
        named = {int(rank) for rank in (missing[1].split(",") if missing else culprits)}
        if named:
            return "+".join(map(str, sorted(named))), named == {*scenario.guilty}
        if "We cannot decide" in line:
            return "cannot decide", False
    return NOTHING, False


def _exported(run: Path) -> Path:
    directory = run.parent / "exported"
    shutil.rmtree(directory, ignore_errors=True)
    write_flight_recorder(str(run), directory)
    return directory


def _of_pytracer(scenario: Scenario, report: Report) -> tuple[str, bool]:
    named = blamed(report)
    class_ = report.verdict.class_ if report.verdict else None
    right = named == scenario.guilty and class_ in scenario.classes
    return f"{'+'.join(map(str, named)) or NOTHING} {class_}", right


def _totals(rows: Sequence[tuple[Scenario, list[Cell]]]) -> str:
    names = ("torchrun", "the Flight Recorder analyzer", "the same on pytracer's records", "pytracer")
    sums = [(sum(c[i].right for _, c in rows), sum(c[i].total for _, c in rows)) for i in range(len(names))]
    return (
        "Right answers: "
        + ", ".join(f"{n} {right} of {total}" for n, (right, total) in zip(names, sums, strict=True))
        + "."
    )


def _markdown(rows: Sequence[tuple[Scenario, list[Cell]]]) -> str:
    head = ["what happened", "ranks", "to blame", "torchrun", "Flight Recorder", "FR, pytracer's records", "pytracer"]
    lines = [head, ["---"] * len(head)]
    for scenario, cells in rows:
        guilty = ", ".join(map(str, scenario.guilty))
        lines.append([scenario.truth, str(scenario.ranks), guilty, *map(str, cells)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
