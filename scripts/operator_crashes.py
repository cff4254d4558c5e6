"""Runs the stored calls of torch's operators that kill the process, and counts how often the report names the cause.

scripts/find_operator_crashes.py has found them. `--again` reads kept recordings with the rules as they are now.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pytracer.decode.symbols import source_lines  # noqa: E402
from scripts.generated_crashes import _markdown, _with_section, machine  # noqa: E402
from tests.generated.operator_calls import OperatorProgram, load, program_of  # noqa: E402
from tests.generated.operator_judge import CallJudged, judge_call  # noqa: E402
from tests.generated.runner import Runner, read_again  # noqa: E402
from tests.generated.workers import in_workers  # noqa: E402
from tests.support import debug_information  # noqa: E402


def _work(programs: Sequence[OperatorProgram], directory: Path, again: bool, keep: bool) -> Iterator[CallJudged]:
    source_lines.SourceLines.of = debug_information._of  # type: ignore[method-assign]
    if again:
        for item in programs:
            path = directory / str(item.program.seed)
            if (path / "status").exists():
                yield judge_call(item, read_again(item.program, path))
        return
    with Runner(directory, None) as runner:
        for item in programs:
            died = runner.run(item.program)
            yield judge_call(item, died)
            if not keep:
                shutil.rmtree(died.path)


def run_all(
    programs: Sequence[OperatorProgram], directory: Path, jobs: int, *, again: bool = False, keep: bool = False
) -> list[CallJudged]:
    """All programs, `jobs` at a time; prints what is not good."""
    return in_workers(lambda share: _work(share, directory, again, keep), programs, jobs, _tell)


def _tell(item: CallJudged) -> None:
    if not item.good:
        print(_words(item), flush=True)


def _words(judged: CallJudged) -> str:
    mark = "WORST " if judged.worst else ""
    culprit = judged.item.culprit
    call = f"{judged.item.program.seed} {judged.item.call} ({judged.item.call.signal})"
    said = f"{judged.class_is}, {judged.class_} ({judged.confidence}), names {judged.names}"
    return f"{mark}{call}: {said}; {culprit.name} at line {culprit.line}\n    {judged.summary}\n    {judged.advice}"


_HEAD = (
    "",
    "programs",
    "class right",
    "class wrong",
    "culprit in the headline",
    "in the next step",
    "another only",
    "none",
    "worst",
)


def _row(name: str, judged: Sequence[CallJudged]) -> list[str]:
    counts = Counter(item.where or item.names for item in judged)
    numbers = (
        len(judged), sum(i.class_is == "right" for i in judged), sum(i.class_is == "wrong" for i in judged),
        counts["headline"], counts["next"], counts["other"], counts["none"], sum(i.worst for i in judged),
    )  # fmt: skip
    return [name, *(str(number) for number in numbers)]


def _by(judged: Sequence[CallJudged], key: Callable[[CallJudged], str]) -> str:
    rows = [_row(name, [i for i in judged if key(i) == name]) for name in sorted({key(i) for i in judged})]
    return _markdown(_HEAD, [*rows, _row("all", judged)])


def tables(judged: Sequence[CallJudged]) -> str:
    """By confidence, family and kind of change."""
    died = [item for item in judged if item.class_is != "nothing"]
    return "\n\n".join([
        _by(died, lambda item: item.confidence),
        _by(died, lambda item: item.item.call.family),
        _by(died, lambda item: item.item.call.kind),
    ])  # fmt: skip


def main() -> int:
    """Runs, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-k", default="", metavar="WORDS", help="only calls whose operator, argument and kind have these words"
    )
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "generated" / "calls")
    parser.add_argument("--calls", type=Path, help="another file of calls")
    parser.add_argument("--keep", action="store_true", help="keep the recordings, 8 MB each")
    parser.add_argument("--again", action="store_true", help="read the kept recordings again instead of running")
    parser.add_argument("-n", "--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    calls = load(options.calls) if options.calls else load()
    programs = [program_of(call) for call in calls if options.k in str(call)]
    judged = run_all(programs, options.directory.resolve(), options.jobs, again=options.again, keep=options.keep)
    nothing = sum(item.class_is == "nothing" for item in judged)
    good = sum(item.good for item in judged)
    words = (
        f"{len(judged)} calls, {nothing} of which did not die; of the others {good} have a right class and name a "
        f"wrong argument; {machine()}."
    )
    text = tables(judged)
    print(f"\n{words}\n\n{text}")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(_with_section(page, f"{date.today()}: {words}\n\n{text}"), encoding="utf-8")
    return 1 if any(item.worst for item in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
