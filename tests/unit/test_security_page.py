"""Every test that SECURITY.md cites exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_security_page_names_exists() -> None:
    """Names of tests, of folders and of programs of the harm table."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert named
    assert sorted(name for name in named if f"def {name}(" not in tests) == []
    paths = [*re.findall(r"`((?:tests|scripts)/[\w./]+)`", page), *re.findall(r"\]\((docs/[\w./-]+)\)", page)]
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
    for program in re.findall(r"`tests/harm` \(([^)]*)\)", page):
        for name in re.findall(r"`(\w+)`", program):
            assert (ROOT / "tests" / "harm" / "programs" / f"{name}.c").exists()
