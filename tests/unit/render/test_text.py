"""The text report, compared with stored copies: `PYTRACER_TEST_STORE=1 pytest tests/unit/render` writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Job
from pytracer.render.address import origin_words
from pytracer.render.details import hex_lines
from pytracer.render.markdown import render_markdown
from pytracer.render.style import Style
from pytracer.render.text import render_text
from pytracer.report import job as r
from tests.conditions import needs_capstone
from tests.support import crash_scenarios as c
from tests.support import scenarios as s

EXPECTED = Path(__file__).parent / "expected"
GOLDEN = Path(__file__).parents[2] / "golden/0.1"
SCREEN_LINES, SCREEN_COLUMNS = 40, 100


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory that the text shows as runs/1."""
    (tmp_path / "runs/1/boxes").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs/1"


def compare(name: str, text: str) -> None:
    path = EXPECTED / name
    if os.environ.get("PYTRACER_TEST_STORE"):
        path.write_text(text)
    assert text == path.read_text()


def exception(run: Path) -> Job:
    """Rank 1 raises, rank 0 loses its connection, the agent reports."""
    text = "mat1 and mat2 shapes cannot be multiplied (8x16 and 32x4)"
    raised = s.ddp(s.rank(1), rebuilt=False).at(1500)
    raised.exception(
        "RuntimeError", text, [("Linear.forward", f"{s.TORCH}/nn/modules/linear.py", 134), *s.BACKWARD[-2:]]
    )
    peer = s.lost_peer(s.ddp(s.rank(0), rebuilt=False).at(1700))
    return s.load(run, s.agent((102, {"exit_code": 1}), (101, {"exit_code": 1})), peer, raised.exit(1))


def killed(run: Path) -> Job:
    """Rank 1 gets SIGKILL; twelve ranks are ended by the agent."""
    boxes = [s.rank(number).at(500).mark("step") for number in range(12)]
    endings: list[tuple[int, dict[str, Any]]] = [
        (101 + number, {"signal": 9 if number == 1 else 15}) for number in range(12)
    ]
    killer = s.agent(*endings[1:2], at=900)
    for pid, ending in (endings[0], *endings[2:]):
        killer.at(1400).wait(pid, **ending)
    return s.load(run, killer, *boxes)


def other_thread(run: Path) -> Job:
    """A native thread without Python state: the main thread's stack is shown, and labelled as such."""
    box = s.rank(0).thread(555, "pt_autograd_0", pthread=0x7000_0555)
    box.at(500).crash(
        addr=0x7F50_0000_0000,
        tid=555,
        native=s.NATIVE[:1],
        python_matched=False,
        other_python={box.threads[0].pthread: s.BACKWARD},
        mappings=[(0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, s.PYTHON)],
    )
    return s.load(run, box)


@needs_capstone
@pytest.mark.parametrize("build", [s.use_after_free, s.detail, exception, killed, other_thread, s.clean, s.single])
def test_text_is_as_stored_and_fits_one_screen(run: Path, build: Callable[[Path], Job]) -> None:
    """What died, where, why, what next; at most 40 lines of 100 columns."""
    text = render_text(build_report(build(run)))
    compare(f"{build.__name__}.txt", text)
    lines = text.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_COLUMNS


@needs_capstone
@pytest.mark.parametrize("build", [c.terminated, c.overflow, c.ended_by_name, c.heap_damage])
@pytest.mark.parametrize("everything", [False, True], ids=["screen", "all"])
def test_what_a_crash_leaves_behind_is_as_stored(run: Path, build: Callable[[Path], Job], everything: bool) -> None:
    """Exceptions, messages, senders, pointers and other threads in brief; with --all in full, for 80 columns."""
    report = build_report(build(run))
    text = render_text(report, Style(width=80 if everything else SCREEN_COLUMNS), everything=everything)
    if everything:
        text = text.split("\n\n", 2)[2]  # the processes; what comes before is the first screen again
    compare(f"{build.__name__}{'_all' if everything else ''}.txt", text)
    lines = text.splitlines()
    assert max(map(len, lines)) <= (80 if everything else SCREEN_COLUMNS)
    assert everything or len(lines) <= SCREEN_LINES


@needs_capstone
@pytest.mark.parametrize(("sentences", "cut"), [(4, False), (12, True)])
def test_advice_that_is_too_long_for_the_screen_says_so(sentences: int, cut: bool, run: Path) -> None:
    """Whole sentences are left out, and `--all` has them."""
    report = build_report(s.use_after_free(run))
    assert report.verdict is not None
    long = " ".join(
        f"Keep tensor {n} in a variable until the backward that reads it has ended." for n in range(sentences)
    )
    report = msgspec.structs.replace(report, verdict=msgspec.structs.replace(report.verdict, advice=long))
    texts = [" ".join(render_text(report, everything=everything).split()) for everything in (False, True)]
    assert ("has ended. ... (--all has the rest)" in texts[0]) == cut
    assert (f"Keep tensor {sentences - 1} " in texts[0]) != cut
    assert f"Keep tensor {sentences - 1} " in texts[1] and "has the rest" not in texts[1]


def test_first_screen_names_three_storages_and_none_twice(run: Path) -> None:
    """Registers that point into the storage of the fault are left out, as is a second one into the same storage."""
    box = s.rank(0)
    for number in range(5):
        box.alloc(c.WEIGHT + number * 8192, 4096)
    registers = {"rdi": c.WEIGHT, "rsi": c.WEIGHT + 64, "rdx": c.WEIGHT + 8192, "rcx": c.WEIGHT + 8200}
    registers |= {"r8": c.WEIGHT + 2 * 8192, "r9": c.WEIGHT + 3 * 8192, "r10": c.WEIGHT + 4 * 8192}
    box.at(500).crash(addr=c.WEIGHT + 64, code=2, registers=registers, native=s.NATIVE[:1])
    text = render_text(build_report(s.load(run, box)))
    shown = text[text.index("pointers") : text.index("thread")].splitlines()
    assert [line[9:].split()[0] for line in shown] == ["r8", "r9", "r10"]


def test_hex_dump_is_aligned_and_shows_characters() -> None:
    """16 bytes a line; what was not kept stays blank."""
    block = r.MemoryBlock(register="rdi", value="0x7f000000000a", addr="0x7f000000000e", bytes=b"ab\0\xffcd".hex())
    assert list(hex_lines(block)) == [
        "0x7f0000000000                                 6162                ab",
        "0x7f0000000010  00ff6364                             ..cd",
    ]


@needs_capstone
def test_explain_shows_why_it_was_nothing_else(run: Path) -> None:
    """--explain: one entry for each explanation, with the fact that refutes it."""
    compare("use_after_free_explain.txt", render_text(build_report(s.use_after_free(run)), explain=True))


@needs_capstone
def test_everything_shows_every_process(run: Path) -> None:
    """--all."""
    compare("use_after_free_all.txt", render_text(build_report(s.use_after_free(run)), everything=True))


def test_colour_changes_no_word(run: Path) -> None:
    """Without its escape codes the coloured text is the plain one."""
    report = build_report(s.use_after_free(run))
    colored = render_text(report, Style(color=True))
    assert "\x1b[" in colored
    plain = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", colored).split("\n"))
    assert plain == render_text(report)


def test_narrow_terminals_keep_every_fact(run: Path) -> None:
    """60 columns: lines wrap, nothing is cut off."""
    report = build_report(s.use_after_free(run))
    narrow = re.sub(r"\s+", "", render_text(report, Style(width=60)))
    for word in ("0x7f3000014000", "SEGV_MAPERR", "consequence:losttheconnectiontorank1", "layers.0.in_proj"):
        assert word in narrow


def test_exception_text_is_not_markup(run: Path) -> None:
    """Brackets in a message are shown as they are."""
    box = s.rank(0).at(5).exception("ValueError", "[bold]x[/bold] :smile:", [("main", s.SCRIPT, 1)]).exit(1)
    assert "[bold]x[/bold] :smile:" in render_text(build_report(s.load(run, box)))


def test_evidence_that_has_a_row_is_left_out_by_its_kind() -> None:
    """Its words decide nothing."""
    kept = "the Python code was at no place: SIGSEGV, the sender's command line"
    shown = ("signal", "access", "python-line", "sender-command")
    evidence = [kept, *(f"in other words {kind}" for kind in shown)]
    facts = [r.Fact(kind="other"), *(r.Fact(kind=kind) for kind in shown)]
    process = r.ProcessReport(pid=7, signal=r.Signal(name="SIGSEGV"))
    verdict = r.Verdict(class_="unknown", pid=7, summary="It died.", evidence=evidence, facts=facts)
    text = render_text(r.Report(verdict=verdict, processes=[process]))
    assert kept in text and "in other words" not in text


def test_a_second_finding_in_the_same_words_is_listed() -> None:
    """The verdict names its finding by position: two ranks may have died of causes in equal words."""
    findings = [r.Finding(id="abort", summary="It died.", ranks=[rank]) for rank in (0, 1)]
    verdict = r.Verdict(class_="abort", summary="It died.", finding=1)
    assert _rows_named("also", r.Report(verdict=verdict, findings=findings)) == ["It died."]
    assert _rows_named("also", r.Report(verdict=r.Verdict(class_="unknown"), findings=findings)) == ["It died."] * 2


def test_a_thread_named_like_a_number_is_shown_by_its_name() -> None:
    """Only a missing name makes a thread `thread 7`."""
    named = r.Origin(thread="thread pool", thread_name="thread pool")
    assert origin_words(named, None) == "place not recorded, thread thread pool"
    assert origin_words(r.Origin(thread="thread 7"), None) == "place not recorded, thread 7"


def test_a_process_is_first_by_the_kind_of_its_reason() -> None:
    """Its words decide nothing."""
    first = r.ProcessReport(pid=1, role="rank", rank=0, primary=True, why="it was first", why_kind="first")
    alike = r.ProcessReport(pid=2, role="rank", rank=1, primary=True, why="first", why_kind="alike")
    text = render_text(r.Report(verdict=r.Verdict(class_="abort"), processes=[first, alike]))
    assert "it was first" not in text and text.count("died first") == 1


# One was stored later.
@pytest.mark.parametrize("name", sorted({path.stem for path in GOLDEN.glob("*.json")} - {"aarch64-ddp-use-after-free"}))
def test_a_report_of_an_earlier_version_is_shown(name: str) -> None:
    """Keys of today are missing from it: the verdict is shown once, and no word is compared."""
    report = msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes(), type=r.Report)
    assert report.verdict is not None and report.verdict.finding is None and report.verdict.summary
    text = render_text(report)
    assert text.replace("\n", " ").count(report.verdict.summary[:40]) == 1
    assert "died first:" not in text


def _rows_named(title: str, report: r.Report) -> list[str]:
    lines = render_text(report).splitlines()
    return [line.removeprefix(title).strip() for line in lines if line.startswith(title)]


def test_long_line_behind_goes_on_below_and_keeps_its_last_arguments() -> None:
    """What matters of a call is often its last argument."""
    text = f"self.args = dict({', '.join(f'option_{n}=conv.option_{n}' for n in range(5))}, groups=conv.groups)"
    code = [r.CodeLine(file="/train.py", line=41, function="make", text=text)]
    report = r.Report(verdict=r.Verdict(class_="arithmetic", confidence="certain", summary="It failed.", code=code))
    shown = render_text(report)
    assert "groups=conv.groups)" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    endless = r.CodeLine(file="/train.py", line=41, function="make", text=" + ".join(["number"] * 60))
    report = r.Report(verdict=r.Verdict(class_="arithmetic", confidence="certain", summary="No.", code=[endless]))
    assert render_text(report).count("number") < 40


def test_lines_of_the_failing_function_are_in_the_order_of_the_source() -> None:
    """One that matters may be below: it runs later, or ran in the round before. The failing one is marked there."""
    code = [
        r.CodeLine(file="/train.py", line=50, function="load", text="rows = read()"),
        r.CodeLine(file="/train.py", line=20, function="step", text="for batch in rows:"),
        r.CodeLine(file="/train.py", line=23, function="step", text="state = model(batch)"),
        r.CodeLine(file="/train.py", line=21, function="step", text="loss = state.sum()"),
    ]
    report = r.Report(
        verdict=r.Verdict(class_="python-exception", confidence="certain", summary="It failed.", code=code)
    )
    assert (
        "in load:\n             50  rows = read()\n         in step:\n             20  for batch in rows:\n"
        "         >   21  loss = state.sum()\n             23  state = model(batch)\n"
    ) in render_text(report)


def test_lines_behind_the_failing_one_are_shown_below_their_functions() -> None:
    """The last one, which failed, is marked; an issue does not get them."""
    code = [
        r.CodeLine(file="/data/loader.py", line=12, function="read", text="rows = load(path)"),
        r.CodeLine(file="/train.py", line=40, function="step", text="batch = read(index)"),
        r.CodeLine(file="/train.py", line=41, function="step", text="loss = model(batch)"),
    ]
    report = r.Report(
        verdict=r.Verdict(class_="python-exception", confidence="certain", summary="It failed.", code=code)
    )
    shown = render_text(report)
    assert "code     in read (/data/loader.py):\n             12  rows = load(path)\n         in step:\n" in shown
    assert "             40  batch = read(index)\n         >   41  loss = model(batch)\n" in shown
    assert "load(path)" not in render_markdown(report)
