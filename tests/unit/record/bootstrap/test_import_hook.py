"""The moment when an import is complete, on a stand-in package: torch itself takes two seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
WATCH = "from pytracer.record.bootstrap.import_hook import when_torch_is_imported as when\n"


def run(tmp_path: Path, body: str, program: str) -> str:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(body, encoding="utf-8")
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]\n"
    done = subprocess.run([sys.executable, "-c", path + WATCH + program], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_acts_at_once_when_torch_is_there(tmp_path: Path) -> None:
    """An import in the past is complete."""
    assert run(tmp_path, "", "import torch; when(lambda: print('act'))") == "act\n"


def test_acts_at_the_end_of_a_later_import(tmp_path: Path) -> None:
    """After the package's last line has run; a second import has no effect."""
    program = "when(lambda: print('act', sys.modules['torch'].ready)); print('before'); import torch; import torch"
    assert run(tmp_path, "ready = True", program) == "before\nact True\n"


def test_acts_at_the_end_of_the_import_under_way(tmp_path: Path) -> None:
    """As when the preloaded core runs inside `import torch`."""
    body = WATCH + "import sys; when(lambda: print('act', sys.modules['torch'].ready))\nprint('inside')\nready = True"
    assert run(tmp_path, body, "import torch; print(torch.__spec__.name)") == "inside\nact True\ntorch\n"


def test_looking_for_torch_is_not_importing_it(tmp_path: Path) -> None:
    """Libraries call find_spec to learn whether torch exists; the import afterwards is still seen."""
    program = (
        "when(lambda: print('act')); import importlib.util as u\n"
        "print(u.find_spec('torch') is not None); import torch; print('done')"
    )
    assert run(tmp_path, "", program) == "True\nact\ndone\n"


def test_failed_import_acts_never(tmp_path: Path) -> None:
    """An incomplete import of torch does not count; the error is the program's own."""
    program = "when(lambda: print('act'))\ntry:\n    import torch\nexcept RuntimeError as error:\n    print(error)"
    assert run(tmp_path, "raise RuntimeError('broken')", program) == "broken\n"


@pytest.mark.parametrize("name", ["torchvision", "torch_like"])
def test_other_packages_are_left_alone(tmp_path: Path, name: str) -> None:
    """Only `torch` itself counts."""
    (tmp_path / f"{name}.py").write_text("", encoding="utf-8")
    assert run(tmp_path, "", f"when(lambda: print('act')); import {name}; print('done')") == "done\n"
