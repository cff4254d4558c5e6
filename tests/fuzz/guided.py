"""Guides the fuzzer by coverage: inputs that reach new code are kept and mutated further.

    python tests/fuzz/fuzz.py --guided --minutes 60    all targets in turn, each for its share of the time
    python tests/fuzz/guided.py TARGET SECONDS FOLDER  one target in this process, which ends with libFuzzer's status

libFuzzer (atheris) selects inputs; they are mutated by our own mutations, which know the formats, and by libFuzzer's,
which insert the operands of comparisons. The corpus is in build/fuzz/corpus-TARGET, where the next run continues.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
import traceback
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["pytracer"]):
    from tests.fuzz import fuzz
    from tests.fuzz.targets import TARGETS, run_one

_HANG_SECONDS = 60  # of wall time; more than fuzz.CPU_SECONDS of CPU is a failure too, if it ends
_MOST_BYTES = 1 << 20


class _Reader:
    """Reads libFuzzer's inputs, and keeps one of each kind of failure, since it finds the same ones repeatedly."""

    def __init__(self, target: str, aside: Path, folder: Path) -> None:
        self.target, self.aside, self.folder = target, aside, folder
        self.known: set[str] = set()

    def __call__(self, content: bytes) -> None:
        began = time.process_time()
        try:
            run_one(self.target, content, self.folder)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            self._failed(kind, f"{kind}: {error}", content)
        if time.process_time() - began > fuzz.CPU_SECONDS:
            self._failed("time", f"more than {fuzz.CPU_SECONDS} s", content)

    def _failed(self, kind: str, what: str, content: bytes) -> None:
        if kind not in self.known:
            self.known.add(kind)
            fuzz.keep(self.aside, self.target, hashlib.sha1(content).hexdigest()[:12], content, what[:200])


def guide(target: str, seconds: float, aside: Path, folder: Path) -> None:
    """Fuzzes one target with a corpus under `aside` and its inputs in `folder`, the caller's; does not return."""
    corpus = aside / f"corpus-{target}"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in TARGETS[target].seeds():
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)

    def changed(content: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        try:
            if rng.random() < 0.5:
                return TARGETS[target].change(rng, content)[:most]
        except MemoryError:  # trees of JSON double in places
            pass
        return bytes(atheris.Mutate(content, most))

    options = [f"-max_total_time={int(seconds)}", f"-timeout={_HANG_SECONDS}", f"-max_len={_MOST_BYTES}"]
    options += [f"-artifact_prefix={aside}/{target}-", "-rss_limit_mb=0", "-verbosity=0", "-print_final_stats=1"]
    fuzz.bounded()
    atheris.Setup([__file__, *options, str(corpus)], _Reader(target, aside, folder), custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    guide(sys.argv[1], float(sys.argv[2]), ROOT / "build" / "fuzz", Path(sys.argv[3]))
