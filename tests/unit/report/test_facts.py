"""Facts: what each sentence of a report is about, for programs, so that none has to search sentences.

Whether every sentence has one is checked for each finding that a test of this suite makes (`tests/conftest.py`).
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import get_args

import msgspec

from pytracer.analyze.engine import build_report
from pytracer.analyze.rules.base import Description
from pytracer.render.json import render_json
from pytracer.render.text import render_text
from pytracer.report.job import Evidence, Fact, FactKind, Report
from tests.support import scenarios as s
from tests.support.cli import ROOT

_MADE = re.compile(r'(?:Evidence|_origin)\(\s*"([a-z-]+)"')


def test_facts_say_as_data_what_the_sentences_say(tmp_path: Path) -> None:
    """The access, both ends of the storage's life, the bucket and the line of a use after free."""
    report = build_report(s.use_after_free(tmp_path / "run"))
    verdict = report.verdict
    assert verdict is not None and verdict.facts is not None and verdict.evidence is not None
    facts = {fact.kind: fact for fact in verdict.facts}
    access, free, bucket = facts["access"], facts["free"], facts["ddp-bucket"]
    assert (access.signal, access.access, access.addr) == ("SIGSEGV", "read", "0x7f3000014000")
    assert free.python is not None and free.base is not None and free.nbytes
    assert bucket.bucket == 0 and bucket.tensor in (bucket.tensors or [])
    said = dict(zip((fact.kind for fact in verdict.facts), verdict.evidence, strict=True))
    assert f"{free.python.line} in {free.python.function}" in said["free"]


def test_json_has_a_fact_beside_each_sentence(tmp_path: Path) -> None:
    """In the same order; keys that do not apply are left out."""
    verdict = json.loads(render_json(build_report(s.use_after_free(tmp_path / "run"))))["verdict"]
    assert all(isinstance(sentence, str) for sentence in verdict["evidence"])
    assert len(verdict["evidence"]) == len(verdict["facts"])
    assert all(value is not None for fact in verdict["facts"] for value in fact.values())


def test_report_without_facts_is_shown_with_all_its_sentences(tmp_path: Path) -> None:
    """As versions before facts wrote it: nothing is left out as shown elsewhere."""
    report = build_report(s.clean(tmp_path / "run"))
    assert report.verdict is not None
    older = msgspec.structs.replace(
        report.verdict, class_="unknown", pid=report.processes[0].pid if report.processes else None
    )
    older = msgspec.structs.replace(
        older, evidence=["SIGSEGV: reading 0x10", "the Python code was at a.py:1"], facts=None
    )
    content = json.loads(render_json(msgspec.structs.replace(report, verdict=older)))
    del content["verdict"]["facts"]
    text = render_text(msgspec.convert(content, Report))
    assert "SIGSEGV: reading 0x10" in text and "the Python code was at a.py:1" in text


def test_evidence_becomes_a_fact_and_a_sentence() -> None:
    """The fact has all the data, and no words."""
    evidence = Evidence("index", "the index was 7", value=7, limit=4)
    assert evidence.fact == Fact(kind="index", value=7, limit=4)
    assert msgspec.to_builtins(evidence.fact) == {"kind": "index", "value": 7, "limit": 4}


def test_every_kind_is_used() -> None:
    """The vocabulary has no kind that no rule uses."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pytracer" / "analyze").rglob("*.py"))
    assert set(_MADE.findall(source)) == set(get_args(FactKind))


def test_every_piece_of_evidence_is_made_with_data() -> None:
    """Also those of explanations that no test of this suite comes to; `**` may bring any."""
    for path in (ROOT / "pytracer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Evidence":
                assert len(node.args) + len(node.keywords) > 2, f"{path.name}:{node.lineno} has a sentence alone"


def test_type_checker_refuses_a_sentence_without_a_kind() -> None:
    """mypy reports an unneeded `type: ignore`: were a plain str or an unknown kind accepted, `make lint` would fail."""
    Description("It died.", ["a sentence"], "Look.")  # type: ignore[list-item]
    Evidence("weather", "it rained")  # type: ignore[arg-type]
