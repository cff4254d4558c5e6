"""docs/reference/rules.md is generated, and current."""

from __future__ import annotations

from pytracer.analyze.evidence.cuda.xid import MEANINGS
from scripts.gen_docs import REFERENCE, known_crashes_page, rules_page
from tests.support.cli import ROOT


def test_rules_page_is_current() -> None:
    """Run python scripts/gen_docs.py after changing a rule's docstring."""
    assert REFERENCE == ROOT / "docs" / "reference"
    assert (REFERENCE / "rules.md").read_text() == rules_page()


def test_every_rule_explains_itself() -> None:
    """What, why, what to do, how it can be wrong."""
    page = rules_page()
    rules = page.count("\n## ")
    for heading in ("**What.**", "**What to do.**", "**How it can be wrong.**", "Needs: "):
        assert page.count(heading) == rules, heading


def test_every_known_xid_is_documented() -> None:
    """With the sentences of the report."""
    page = (ROOT / "docs" / "guide" / "gpu.md").read_text(encoding="utf-8")
    for number, meaning in MEANINGS.items():
        assert f"| {number} | {meaning.what} | {meaning.kind} |" in page


def test_page_of_known_crashes_is_what_the_registry_says() -> None:
    """Run python scripts/gen_docs.py after changing an entry."""
    assert (REFERENCE / "known-crashes.md").read_text() == known_crashes_page()
