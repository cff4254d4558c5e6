"""What is private is in no field of a redacted report, and what is not stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.redaction.report import redact_report
from pytracer.analyze.redaction.vocabulary import node_names
from pytracer.decode.job.merge import load_job
from pytracer.render.json import render_json
from pytracer.render.markdown import MOST_LINES, render_markdown
from pytracer.render.text import render_text
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.planted import HOST, PRIVATE, USER, leaks, planted_run
from tests.support.secrets import GHP


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> r.Report:
    return build_report(load_job(planted_run(tmp_path_factory.mktemp("planted"))))


def test_everything_that_is_planted_is_in_the_report(report: r.Report) -> None:
    """Or the next test proves nothing."""
    assert len(PRIVATE) >= 20
    assert set(leaks(render_json(report))) == set(PRIVATE)


def test_no_view_of_a_redacted_report_holds_a_private_value(report: r.Report) -> None:
    """JSON has every field; the others are made of it."""
    shown = redact_report(report)
    assert leaks(render_json(shown)) == {}
    assert leaks(render_text(shown, everything=True, explain=True, checked=True)) == {}
    assert leaks(render_markdown(shown)) == {}


def test_what_was_replaced_is_counted_and_shown(report: r.Report) -> None:
    """Each value once, by kind; and in a row of the text."""
    shown = redact_report(report)
    assert shown.removed is not None
    assert shown.removed["secrets"] >= 10 and shown.removed["credentials"] == 2
    assert shown.removed["hosts"] >= 5 and shown.removed["users"] >= 2 and shown.removed["memory_blocks"] == 1
    assert f"redacted {shown.removed['secrets']} secrets, 2 URL credentials, " in render_text(shown)
    assert f"{shown.removed['secrets']} secrets, 2 URL credentials, " in render_markdown(shown)


def test_verdict_frames_and_versions_stay(report: r.Report) -> None:
    """Only names change: the same findings, functions, lines and addresses."""
    shown = redact_report(report)
    assert shown.verdict and report.verdict and shown.run and report.run
    assert (shown.verdict.class_, shown.verdict.rank) == (report.verdict.class_, report.verdict.rank)
    assert [item.id for item in shown.findings or ()] == [item.id for item in report.findings or ()]
    assert (shown.run.torch, shown.run.python) == (report.run.torch, report.run.python)
    (rank,) = [item for item in shown.processes or () if item.rank == 1]
    assert [(f.function, f.file, f.line) for f in rank.python_stack or ()] == [
        ("load", "data/load.py", 7),
        ("<module>", "train.py", 30),
    ]
    assert [f.image for f in rank.native_stack or ()] == ["libop.so", "/usr/lib/libc.so.6"]
    assert rank.host == "host-1"


def test_redaction_is_pure_and_settles(report: r.Report) -> None:
    """The given report stays; to redact twice changes nothing more."""
    before = render_json(report)
    once = redact_report(report)
    assert render_json(report) == before
    again = redact_report(once)
    assert again.removed is not None and again.removed["secrets"] == 0
    assert render_json(again).split('"removed"')[0] == render_json(once).split('"removed"')[0]


def test_names_that_the_report_does_not_show_can_be_given(report: r.Report) -> None:
    """The reader's own: a user who is in no home directory of the report."""
    changed = r.Report(verdict=r.Verdict(summary="carol ran out of quota on desk9, carolina did not"))
    shown = redact_report(changed, users=["carol"], hosts=["desk9"])
    assert shown.verdict and shown.verdict.summary == "user-1 ran out of quota on host-1, carolina did not"


@pytest.mark.parametrize(
    "text",
    [
        "c10d::Logger::set_env_variables()",
        "std::vector<int, std::allocator<int> >",
        "torch::jit::SharedParserData::isUnary(int, int*)",
        "tcp://127.0.0.1:29500",
        "https://pytorch.org/docs/stable/notes/cuda.html",
        "read 4 of 8 bytes at 0x7f3000001000, 1/2 of it",
        "--max-tokens 4096 --tokenizer=llama",
        "12:30:45 torch 2.13.0+cu124, cuDNN libcudnn.so.9.1.0",
        "collective all_reduce float32 [10, 3] and/or broadcast",
        "memcpy@GLIBC_2.14",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
    ],
)
def test_technical_text_stays(text: str) -> None:
    """What looks like a path, an address or a secret, and is none."""
    shown = redact_report(r.Report(verdict=r.Verdict(summary=text)))
    assert shown.verdict and shown.verdict.summary == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot open /data/team/x/shard-7.tar", "cannot open .../shard-7.tar"),
        ("/venv/lib/python3.11/site-packages/torch/nn/x.py", ".../site-packages/torch/nn/x.py"),
        ("https://u:p@h.example.com/x", "https://***@host-1/x"),
        (f"git clone https://{GHP}@github.com/x/y", "git clone https://***@host-1/x/y"),
        ("connect to 192.168.4.5:29500 failed", "connect to host-1:29500 failed"),
        ("login --password hunter22 failed", "login --password *** failed"),
    ],
)
def test_text_of_a_message_is_redacted(text: str, expected: str) -> None:
    """In place: what is around it stays."""
    shown = redact_report(r.Report(verdict=r.Verdict(summary=text)))
    assert shown.verdict and shown.verdict.summary == expected


def test_node_list_of_slurm_names_every_node() -> None:
    """Its brackets are expanded, with leading zeros, up to a limit."""
    assert list(node_names("node[01-03,7],login")) == ["node[01-03,7]", "node01", "node02", "node03", "node7", "login"]
    assert len(list(node_names("n[0-999999999]"))) < 5000


def test_markdown_never_has_more_than_60_lines() -> None:
    """Whatever there is to say: rows, stacks, source and undecided rules are cut with a count."""
    frames = [r.PythonFrame(function=f"f{n}", file=f"/x/{n}.py", line=n) for n in range(40)]
    native = [r.NativeFrame(image=f"/lib{n}.so", function=f"native{n}", found="exact") for n in range(40)]
    process = r.ProcessReport(
        pid=1,
        rank=0,
        status=r.Status(kind="signaled", signal=11),
        signal=r.Signal(number=11, name="SIGSEGV"),
        python_stack=frames,
        native_stack=native,
        abort_text="\n".join("word " * 60 for _ in range(9)),
        notes=["a note"] * 9,
    )
    evidence = [f"sentence {n} " + "word " * 60 for n in range(30)]
    report = r.Report(
        run=r.Run(torch="2.13.0", directory="/x/runs/1"),
        verdict=r.Verdict(class_="abort", pid=1, rank=0, summary="word " * 90, advice="word " * 90, evidence=evidence),
        processes=[process],
        checked=[r.Checked(id=f"rule-{n}", result="cannot-decide", why="word " * 90) for n in range(60)]
        + [r.Checked(id=f"other-{n}", result="not-found", why="no") for n in range(60)],
        sources=[r.SourceSnippet(file="/x/0.py", line=3, first_line=1, lines=["text"] * 9)],
    )
    lines = render_markdown(redact_report(report)).splitlines()
    assert 50 < len(lines) <= MOST_LINES
    assert [line for line in lines if "more lines" in line] and lines[-1].startswith("Redacted by pytracer ")


def test_markdown_is_short_and_means_nothing(tmp_path: Path) -> None:
    """At most 60 lines, also of long reports; text of the job is no markup and mentions nobody."""
    hostile = "</details><script>alert(1)</script> ```\n@everyone [x](http://evil) | a"
    job = s.single(tmp_path, argv=("python", hostile), abort_text=(hostile + "\n") * 90, signal=6)
    text = render_markdown(redact_report(build_report(job)))
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES
    inside = False
    for line in lines:
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            assert "<script>" not in line and not line.replace("`@`", "").count("@")
    assert not inside
    assert {HOST, USER} & {*text.split()} == set()
