"""Counts how often fingerprints are right: one for the same crash elsewhere, two for different crashes.

Every program of tests/corpus runs three times: as it is; again; and "elsewhere", from another directory, with seven
lines inserted above its code, torch's kernels for AVX2, and another number of threads. The three of
a program are one cause, and programs are different causes, though many are of one class and some in one function.

tests/corpus/programs/look_alikes.py adds deaths that differ only in their cause.

    python scripts/fingerprint_pairs.py                     half an hour
    python scripts/fingerprint_pairs.py -k u0               some programs
    python scripts/fingerprint_pairs.py --reports build/prints --write docs/measurements/fingerprints.md

Reports that are in the folder of --reports are not made again: after a change of the rules, seconds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pytracer.analyze.engine import build_report  # noqa: E402
from pytracer.decode.job.load import load_runs  # noqa: E402
from pytracer.history.fingerprint import VERSION, fingerprint, fingerprint_parts  # noqa: E402
from pytracer.history.rows import ENDED_WELL  # noqa: E402
from pytracer.report.job import Report  # noqa: E402
from tests.support.cli import clean_environment  # noqa: E402
from tests.support.machine import machine  # noqa: E402

CORPUS = ROOT / "tests" / "corpus"
LOOK_ALIKES = (
    "embedding_of_missing_row", "select_of_missing_row", "layer_of_missing_row", "none_has_no_shape",
    "none_has_no_backward", "name_of_loss", "name_of_scheduler", "no_argument_dropout", "class_as_float",
    "likelihood_as_float", "read_of_null", "write_of_null", "aborts", "freed_twice", "terminates_itself",
    "kills_itself", "leaves_with_3", "leaves_with_4", "validate_embedding", "validate_view",
)  # fmt: skip
WRONG = "What was wrong, with what only one of two has:"
INSERTED = "# An edit above the code.\n" * 7
WAYS = ("first", "again", "elsewhere")
PAGE = """# Fingerprints, counted

<!-- Written by `python scripts/fingerprint_pairs.py --write docs/measurements/fingerprints.md`. -->

{programs} deaths: {reported} of the {known} crashes of tests/corpus, and {look_alikes} look-alikes,
which differ only in their cause: one file, one function, often one message. Each is run three times: as it is, again,
and from another place, with seven lines inserted above its code, `ATEN_CPU_CAPABILITY=avx2` and another number of
threads. The three runs of a program are one cause, different programs are different ones. Version 2 of the rules was
made after looking at pairs of these that version 1 got wrong: it is no unseen set.

On {machine}, busy with other work;
version {version} of the rules ([how](../guide/history.md#when-two-deaths-are-the-same)).

| pairs | | said to be one |
|---|---|---|
| of one program | {same} | {found} |
| of two programs | {different} | {confused} |

Recall {recall:.3f}, precision {precision:.3f}.

{wrong}
"""


@dataclass(frozen=True)
class Death:
    """One run of one program."""

    program: str
    way: str
    class_: str
    fingerprint: str
    parts: tuple[str, ...]


def death(case: dict[str, Any], way: str, programs: Path, into: Path, kept: Path) -> Death:
    """Of the report that is kept, or of a new one."""
    file = kept / f"{case['id']}-{way}.json"
    if not file.exists():
        file.write_bytes(msgspec.json.encode(run(case, way, programs, into)))
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    class_ = (report.verdict.class_ if report.verdict is not None else None) or "unknown"
    return Death(case["id"], way, class_, fingerprint(report), fingerprint_parts(report))


def run(case: dict[str, Any], way: str, programs: Path, into: Path) -> Report:
    """Runs a program below the launcher."""
    directory = into / f"{case['id']}-{way}"
    variables = {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "2",
        "TORCH_EXTENSIONS_DIR": str(ROOT / "build" / "corpus-extensions"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    if way == "elsewhere":
        variables |= {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "3"}
    program = [str(programs / f"{case['id']}.py")]
    if case["launcher"] == "look-alike":
        program = [str(programs / "look_alikes.py"), case["id"]]
    command = [sys.executable, *program]
    if case["launcher"] == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    if "limit_s" in case:
        command = ["timeout", "-s", "TERM", str(case["limit_s"]), *command]
    subprocess.run(
        [sys.executable, "-m", "pytracer", "run", "-o", str(directory), "--", *command],
        env=clean_environment(**variables), cwd=programs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, timeout=600, check=False,
    )  # fmt: skip
    report = build_report(load_runs([directory]))
    shutil.rmtree(directory)
    return report


def moved(into: Path) -> Path:
    """The programs in another place, with an edit above the code of each."""
    target = into / "checkout-4f1" / "src"
    shutil.copytree(CORPUS / "programs", target)
    for path in target.glob("*.py"):
        path.write_text(INSERTED + path.read_text(encoding="utf-8"), encoding="utf-8")
    return target


def words(deaths: list[Death], known: int) -> tuple[str, bool]:
    """The page, and whether precision and recall are what was promised."""
    alive = sorted({item.program for item in deaths if item.class_ in ENDED_WELL})
    deaths = [item for item in deaths if item.class_ not in ENDED_WELL]
    same = [(a, b) for a, b in itertools.combinations(deaths, 2) if a.program == b.program]
    different = [(a, b) for a, b in itertools.combinations(deaths, 2) if a.program != b.program]
    found = [pair for pair in same if pair[0].fingerprint == pair[1].fingerprint]
    confused = [pair for pair in different if pair[0].fingerprint == pair[1].fingerprint]
    recall = len(found) / len(same)
    precision = len(found) / max(1, len(found) + len(confused))
    lines = []
    for a, b in [pair for pair in same if pair not in found]:
        lines.append(f"- {a.program}, {a.way} and {b.way}: {_difference(a, b)}")
    for first, second in sorted({(a.program, b.program) for a, b in confused}):
        lines.append(f"- {first} and {second} have one fingerprint")
    lines += [f"- {item} did not die each time: that run is not counted" for item in alive]
    programs = {item.program for item in deaths}
    page = PAGE.format(
        programs=len(programs), look_alikes=len(programs & set(LOOK_ALIKES)),
        reported=len(programs - set(LOOK_ALIKES)), known=known, machine=machine(), version=VERSION,
        same=len(same), found=len(found), different=len(different), confused=len(confused), recall=recall,
        precision=precision, wrong="\n".join([WRONG, "", *lines]) if lines else "Nothing was wrong.",
    )  # fmt: skip
    return page, recall >= 0.95 and precision >= 0.98


def _difference(a: Death, b: Death) -> str:
    only = [part for part in (*a.parts, *b.parts) if (part in a.parts) != (part in b.parts)]
    return "; ".join(f"`{part}`" for part in only) or "the order of frames"


def main() -> int:
    """Runs, prints, writes; 1 if recall is below 0.95 or precision below 0.98."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="some", metavar="TEXT", default="", help="only programs with this in their name")
    parser.add_argument("--write", metavar="FILE", help="write the page, too")
    parser.add_argument("--reports", metavar="DIR", help="keep the reports there, and use those that are there")
    parser.add_argument("--no-runs", action="store_true", help="only programs all of whose reports are in DIR")
    given = parser.parse_args()
    cases = [case for file in sorted(CORPUS.glob("*.toml")) for case in msgspec.toml.decode(file.read_bytes())["case"]]
    known = len(cases)
    cases += [{"id": name, "launcher": "look-alike"} for name in LOOK_ALIKES]
    cases = [case for case in cases if given.some in case["id"]]
    deaths = []
    with tempfile.TemporaryDirectory(prefix="pytracer-fingerprints-") as name:
        kept = Path(given.reports or Path(name) / "reports")
        kept.mkdir(parents=True, exist_ok=True)
        elsewhere = moved(Path(name))
        if given.no_runs:
            cases = [case for case in cases if all((kept / f"{case['id']}-{way}.json").exists() for way in WAYS)]
        for case in cases:
            for way in WAYS:
                programs = elsewhere if way == "elsewhere" else CORPUS / "programs"
                deaths.append(death(case, way, programs, Path(name), kept))
                print(f"{case['id']:40} {way:10} {deaths[-1].fingerprint}", file=sys.stderr)
    page, good = words(deaths, known)
    print(page)
    if given.write:
        Path(given.write).write_text(page, encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
