"""Runs crashes with known cause, and counts how often the report is right, by how sure it was."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pytracer.decode.symbols import source_lines  # noqa: E402
from tests.generated.generator import ERRORS, Program, distinct  # noqa: E402
from tests.generated.judge import Judged, judge  # noqa: E402
from tests.generated.runner import Runner, build, read_again  # noqa: E402
from tests.generated.workers import in_workers  # noqa: E402
from tests.support import debug_information  # noqa: E402

SEEDS = 2100  # 2,000 different programs, and some
CONFIDENCES = ("certain", "likely", "possible", "unknown")


def _work(programs: Sequence[Program], directory: Path, libraries: Path, again: bool, keep: bool) -> Iterator[Judged]:
    source_lines.SourceLines.of = debug_information._of  # type: ignore[method-assign]
    if again:
        for program in programs:
            path = directory / str(program.seed)
            if (path / "status").exists():
                yield judge(program, read_again(program, path))
        return
    with Runner(directory, libraries) as runner:
        for program in programs:
            died = runner.run(program)
            judged = judge(program, died)
            if not keep and not judged.wrong and judged.class_is != "nothing":
                shutil.rmtree(died.path)
            yield judged


def run_all(programs: Sequence[Program], directory: Path, jobs: int, *, again: bool, keep: bool) -> list[Judged]:
    """All programs, `jobs` at a time; prints what is not right."""
    libraries = build(directory / "libraries")
    judged = in_workers(lambda share: _work(share, directory, libraries, again, keep), programs, jobs, _tell)
    return sorted(judged, key=lambda item: item.program.seed)


def _tell(item: Judged) -> None:
    if item.wrong or item.class_is in ("nothing", "defensible"):
        words = f"wrong: {', '.join(item.wrong)}" if item.wrong else item.class_is
        print(f"{item.program}: {words}: {item.class_} ({item.confidence}): {item.summary}", flush=True)


def _rows(judged: Sequence[Judged]) -> Iterator[list[str]]:
    for confidence in CONFIDENCES:
        said = [item for item in judged if item.confidence == confidence]
        wrong = sum(bool(item.wrong) for item in said)
        right = sum(not item.wrong and item.class_is == "right" for item in said)
        yield [
            confidence,
            f"{len(said)}",
            f"{right}",
            f"{len(said) - right - wrong}",
            f"{wrong}",
            _share(wrong, len(said)),
        ]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def calibration(judged: Sequence[Judged]) -> str:
    """Said certain, likely, possible, unknown: how often right."""
    return _markdown(["said", "programs", "right", "defensible", "wrong", "wrong of them"], list(_rows(judged)))


def parts(judged: Sequence[Judged]) -> str:
    """Class, culprit, storage, line, thread: said, and right."""
    rows = [
        ["class", len(judged), sum(i.class_is == "right" for i in judged), sum(i.class_is == "wrong" for i in judged)]
    ]
    for name in ("culprit", "storage", "line", "thread"):
        said = [getattr(item, name) for item in judged if getattr(item, name) is not None]
        rows.append([name, len(said), sum(said), len(said) - sum(said)])
    return _markdown(["", "said", "right", "wrong"], [[str(cell) for cell in row] for row in rows])


def classes(judged: Sequence[Judged]) -> str:
    """By class that was said and confidence: right / defensible / wrong."""
    rows = []
    for name in sorted({item.class_ for item in judged}):
        cells = []
        for confidence in CONFIDENCES:
            said = [i for i in judged if (i.class_, i.confidence) == (name, confidence)]
            wrong = sum(bool(i.wrong) for i in said)
            right = sum(not i.wrong and i.class_is == "right" for i in said)
            cells.append(f"{right} / {len(said) - right - wrong} / {wrong}" if said else "")
        rows.append([name, *cells])
    return _markdown(["said", *CONFIDENCES], rows)


def errors(judged: Sequence[Judged]) -> str:
    """By error that was built in."""
    rows = []
    for name in ERRORS:
        made = [item for item in judged if item.program.error == name]
        counts = Counter("wrong" if item.wrong else item.class_is for item in made)
        rows.append(
            [name, *(str(value) for value in (len(made), counts["right"], counts["defensible"], counts["wrong"]))]
        )
    return _markdown(["built in", "programs", "right", "defensible", "wrong"], rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """Where it was measured."""
    libc, version = platform.libc_ver()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {libc} {version}, CPython {platform.python_version()}, "
        f"torch {importlib.metadata.version('torch')}"
    )


def tables(judged: Sequence[Judged]) -> str:
    """Everything that was counted."""
    died = [item for item in judged if item.class_is != "nothing"]
    return "\n\n".join([calibration(died), parts(died), classes(died), errors(died)])


def _with_section(page: str, text: str) -> str:
    """The page with another section "Now"."""
    before, head, rest = page.partition("## Now\n")
    _, following, after = rest.partition("\n## ")
    return f"{before}{head}\n{text}\n{following}{after}"


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    try:
        return range(int(first), int(end or int(first) + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor FIRST:END, such as 0:100") from None


def main() -> int:
    """Runs, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=f"0:{SEEDS}", metavar="FIRST:END")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "generated")
    parser.add_argument(
        "--keep", action="store_true", help="keep all recordings, 8 MB each, not only those judged wrong"
    )
    parser.add_argument("--again", action="store_true", help="read the kept recordings again instead of running")
    parser.add_argument("-n", "--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    programs = list(distinct(options.seeds))
    judged = run_all(programs, options.directory.resolve(), options.jobs, again=options.again, keep=options.keep)
    text = tables(judged)
    nothing = sum(item.class_is == "nothing" for item in judged)
    words = (
        f"{len(judged)} programs of the seeds {options.seeds.start}:{options.seeds.stop}, {nothing} of which left "
        f"nothing to judge; {machine()}."
    )
    print(f"\n{words}\n\n{text}")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(_with_section(page, f"{date.today()}: {words}\n\n{text}"), encoding="utf-8")
    sure = [item for item in judged if item.wrong and item.confidence == "certain"]
    return 1 if sure else 0


if __name__ == "__main__":
    sys.exit(main())
