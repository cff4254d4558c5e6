"""The public face: what `import pytracer` offers, and what it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytracer
from tests.support.cli import clean_environment
from tests.support.synth import Box

# None in sys.modules makes an import fail as if the package were not there.
BLOCKED = "import sys; sys.modules.update(dict.fromkeys(('torch', 'numpy')));"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=clean_environment(), capture_output=True, text=True, check=False
    )


def test_public_names_exist_and_are_documented() -> None:
    """Every name of `__all__` exists, and has a docstring where it is code."""
    for name in pytracer.__all__:
        value = getattr(pytracer, name)
        assert name == "__version__" or value.__doc__, name
    assert sorted(pytracer.__all__) == pytracer.__all__


def test_import_starts_nothing_and_needs_no_torch() -> None:
    """`import pytracer` loads neither torch nor a compiled library, and is quick."""
    done = python(f"{BLOCKED} import pytracer; print(len([m for m in sys.modules if m.startswith('pytracer')]))")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 5


def test_reading_needs_neither_torch_nor_the_native_half(tmp_path: Path) -> None:
    """Recordings of a cluster can be read on a laptop: load, inspect and dump work without torch."""
    box = tmp_path / "node0.101.blackbox"
    Box(pid=101).write(box)
    code = (
        f"{BLOCKED} import pytracer; from pytracer.cli import main; "
        "job = pytracer.load(sys.argv[1]); print(job.processes[0].snapshot.pid); "
        "sys.exit(main(['inspect', sys.argv[1]]) or main(['dump', sys.argv[1]]))"
    )
    done = python(code, str(box))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("101\n")
