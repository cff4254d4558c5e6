"""Counts how often fingerprints are right: one for the same crash elsewhere, two for different crashes.

Every program of tests/corpus runs three times: as it is; again; and "elsewhere", from another directory, with seven
lines inserted above its code, torch's kernels for AVX2, and another number of threads. The three of
a program are one cause, and programs are different causes, though many are of one class and some in one function.

    python scripts/fingerprint_pairs.py                     ten minutes
    python scripts/fingerprint_pairs.py -k u0               some programs
    python scripts/fingerprint_pairs.py --write docs/measurements/fingerprints.md
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
from tests.support.cli import clean_environment  # noqa: E402
from tests.support.machine import machine  # noqa: E402

CORPUS = ROOT / "tests" / "corpus"
INSERTED = "# An edit above the code.\n" * 7
WAYS = ("first", "again", "elsewhere")
PAGE = """# Fingerprints, counted

<!-- Written by `python scripts/fingerprint_pairs.py --write docs/measurements/fingerprints.md`. -->

{programs} crashes that users reported (tests/corpus), each run three times: as it is, again, and from another place,
with seven lines inserted above its code, `ATEN_CPU_CAPABILITY=avx2` and another number of threads. The three runs of
a program are one cause, different programs are different ones. On {machine};
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
    fingerprint: str
    parts: tuple[str, ...]


def run(case: dict[str, Any], way: str, programs: Path, into: Path) -> Death:
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
    command = [sys.executable, str(programs / f"{case['id']}.py")]
    if case["launcher"] == "torchrun":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*torchrun, command[1]]
    if "limit_s" in case:
        command = ["timeout", "-s", "TERM", str(case["limit_s"]), *command]
    subprocess.run(
        [sys.executable, "-m", "pytracer", "run", "-o", str(directory), "--", *command],
        env=clean_environment(**variables), cwd=programs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, timeout=600, check=False,
    )  # fmt: skip
    report = build_report(load_runs([directory]))
    shutil.rmtree(directory)
    return Death(case["id"], way, fingerprint(report), fingerprint_parts(report))


def moved(into: Path) -> Path:
    """The programs in another place, with an edit above the code of each."""
    target = into / "checkout-4f1" / "src"
    shutil.copytree(CORPUS / "programs", target)
    for path in target.glob("*.py"):
        path.write_text(INSERTED + path.read_text(encoding="utf-8"), encoding="utf-8")
    return target


def words(deaths: list[Death]) -> tuple[str, bool]:
    """The page, and whether precision and recall are what was promised."""
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
    page = PAGE.format(
        programs=len({item.program for item in deaths}), machine=machine(), version=VERSION, same=len(same),
        found=len(found), different=len(different), confused=len(confused), recall=recall, precision=precision,
        wrong="\n".join(["What was wrong:", "", *lines]) if lines else "Nothing was wrong.",
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
    given = parser.parse_args()
    cases = [
        case
        for file in sorted(CORPUS.glob("*.toml"))
        for case in msgspec.toml.decode(file.read_bytes())["case"]
        if given.some in case["id"]
    ]
    deaths = []
    with tempfile.TemporaryDirectory(prefix="pytracer-fingerprints-") as name:
        elsewhere = moved(Path(name))
        for case in cases:
            for way in WAYS:
                programs = elsewhere if way == "elsewhere" else CORPUS / "programs"
                deaths.append(run(case, way, programs, Path(name)))
                print(f"{case['id']:40} {way:10} {deaths[-1].fingerprint}", file=sys.stderr)
    page, good = words(deaths)
    print(page)
    if given.write:
        Path(given.write).write_text(page, encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
