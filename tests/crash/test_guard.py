"""Guard mode: memory errors that go unnoticed without it fault at the access, or are detected afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Finding, GuardReport, PythonFrame, Report, StorageReport
from tests.conditions import needs_compiler, needs_core, needs_memory_lock, needs_native
from tests.support.crash import PROGRAMS, Ended, line_of, victim

pytestmark = [needs_core, needs_native, needs_compiler]

SIGSEGV = -11
# program, its arguments, settings of guard mode, verdict, line that accesses, line that allocated, line that freed
SILENT = [
    ("guard_overrun.py", ["1024"], "", "out-of-bounds", "kernels.decay(", "return torch.zeros(count)", None),
    ("guard_overrun.py", ["1001"], ",align:4", "out-of-bounds", "kernels.decay(", "return torch.zeros(count)", None),
    ("guard_overrun.py", ["4000000"], "", "out-of-bounds", "kernels.decay(", "return torch.zeros(count)", None),
    ("guard_underrun.py", ["500"], ",side:underrun", "out-of-bounds", "return kernels.", "step(torch.arange(", None),
    (
        "guard_use_after_free.py",
        [],
        "",
        "use-after-free",
        "return kernels.look_up",
        "weights * 2",
        "register(torch.arange(",
    ),
    ("guard_stale_view.py", [], "", "use-after-free", "float(view[10])", "= torch.ones(5000)", "storage.resize_(0)"),
    ("guard_sparse_column.py", [], "", "out-of-bounds", "adjacency @", "= torch.ones(64, 16)", None),
    ("guard_untyped.py", ["overrun"], "", "out-of-bounds", "kernels.decay(", "torch.UntypedStorage(4096)", None),
    (
        "guard_untyped.py",
        ["freed"],
        "",
        "use-after-free",
        "kernels.look_up(",
        "torch.UntypedStorage(8192)",
        "table.resize_(0)",
    ),
    ("guard_backward.py", [], "", "use-after-free", "mask = torch.tensor(", "(x > 0).float()", "Scale.apply(x)"),
]
NAMES = [f"{program[6:-3]}{'-'.join(['', *words])}{more}" for program, words, more, *_ in SILENT]


def guarded(program: str, *arguments: str, run: Path, words: str = "all", **options: Any) -> Ended:
    """A victim in guard mode."""
    return victim(program, *arguments, run=run, PYTRACER_GUARD=words, **options)


def storage_of(report: Report) -> StorageReport:
    """The storage of the fault of the process that died first."""
    (process,) = [item for item in report.processes or [] if item.fault is not None]
    assert process.fault is not None and process.fault.storage is not None
    return process.fault.storage


def guard_of(done: Ended) -> GuardReport:
    """Guard mode in the report of a run of one process."""
    (process,) = done.report.processes or []
    assert process.guard is not None
    return process.guard


def line(frame: PythonFrame | None, program: str) -> int | None:
    """The line of a frame of the victim."""
    assert frame is not None and frame.file == str(PROGRAMS / program), frame
    return frame.line


def finding(report: Report, rule: str) -> Finding | None:
    """The finding of one rule."""
    return next((item for item in report.findings or [] if item.id == rule), None)


@pytest.fixture(scope="module")
def training(runs: Callable[[], Path]) -> Callable[[str], str]:
    """What guard_training.py prints untraced, by its number of threads; run once for each."""

    @functools.cache
    def printed(threads: str) -> str:
        return victim("guard_training.py", threads, run=runs(), way="untraced", OMP_NUM_THREADS=threads).stdout

    return printed


@pytest.mark.quick(3)
@pytest.mark.parametrize(("program", "arguments", "more", "verdict", "access", "born", "freed"), SILENT, ids=NAMES)
def test_silent_error_faults_at_the_access_under_guard(
    program: str, arguments: list[str], more: str, verdict: str, access: str, born: str, freed: str | None, run: Path
) -> None:
    """Untraced it exits normally; guarded it dies at the faulty line, and the report has the storage's two lines."""
    plain = victim(program, *arguments, run=run, way="untraced")
    assert plain.status == 0 and "finished" in plain.stdout, plain.stderr
    done = guarded(program, *arguments, run=run, words=f"all{more}")
    assert (done.status, done.stdout) == (SIGSEGV, ""), done.stderr
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == (verdict, "certain")
    (process,) = report.processes or []
    assert line((process.python_stack or _main_stack(report))[0], program) == line_of(program, access)
    storage = storage_of(report)
    assert storage.found == "guard"
    assert storage.allocated is not None and storage.allocated.stack
    assert line(storage.allocated.caller or storage.allocated.python, program) == line_of(program, born)
    if freed is None:
        assert (storage.state, storage.freed, storage.distance_bytes) == ("live", None, _distance(program))
        return
    assert storage.state == "freed" and storage.freed is not None and storage.freed.stack
    assert line(storage.freed.caller or storage.freed.python, program) == line_of(program, freed)


def _distance(program: str) -> int:
    """One past the end; eight before the start for the element of eight bytes before the first."""
    return 8 if program == "guard_underrun.py" else 1


def _main_stack(report: Report) -> list[PythonFrame]:
    (process,) = report.processes or []
    (main,) = [item for item in process.threads or [] if item.kind == "main"]
    assert main.python_stack
    return main.python_stack


def test_stacks_have_more_than_one_line(run: Path) -> None:
    """A guarded storage has the caller of the function that allocated it."""
    storage = storage_of(guarded("guard_overrun.py", "1024", run=run).report)
    assert storage.allocated is not None
    functions = [frame.function for frame in storage.allocated.stack or []]
    assert functions == ["make_cache", "step", "<module>"]


@pytest.mark.parametrize("steps", ["1", "3"])
@pytest.mark.quick(1)
def test_write_into_the_slack_is_found_when_the_storage_is_freed(steps: str, run: Path) -> None:
    """1000 floats leave 32 bytes of the page: nothing faults, and the report has the bytes that were written."""
    done = guarded("guard_overrun.py", "1000", steps, run=run)
    assert done.status == 0 and done.stdout.startswith("finished")
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("out-of-bounds", "certain")
    assert "past the end of a storage of 4000 bytes, allocated at guard_overrun.py" in (report.verdict.summary or "")
    damaged = guard_of(done).damaged or []
    assert len(damaged) == int(steps)
    for item in damaged:
        assert (item.nbytes, item.side, item.offset_bytes, item.changed_bytes) == (4000, "behind", 4000, 4)
        assert item.freed is not None and item.allocated is not None
        assert line(item.allocated.python, "guard_overrun.py") == line_of("guard_overrun.py", "torch.zeros(count)")


def test_damage_beside_a_living_storage_is_found_at_the_end(tmp_path: Path, run: Path) -> None:
    """A storage that is never freed is checked when the process ends, also through os._exit."""
    program = tmp_path / "lives.py"
    text = (
        "import torch, ctypes, os\nkept = torch.ones(1000)\nctypes.memset(kept.data_ptr() + 4000, 7, 5)\nos._exit(0)\n"
    )
    program.write_text(text, encoding="utf-8")
    done = guarded(str(program), run=run)
    assert done.status == 0
    (item,) = guard_of(done).damaged or []
    assert (item.offset_bytes, item.changed_bytes, item.content, item.freed) == (4000, 5, "0707070707", None)


@pytest.mark.slow
def test_damage_before_the_storage_is_found_too(tmp_path: Path, run: Path) -> None:
    """On the side without an adjacent guard, within the storage's own pages."""
    program = tmp_path / "before.py"
    program.write_text("import torch, ctypes\nt = torch.ones(1000)\nctypes.memset(t.data_ptr() - 8, 7, 8)\ndel t\n")
    done = guarded(str(program), run=run)
    (item,) = guard_of(done).damaged or []
    assert (item.side, item.offset_bytes, item.changed_bytes) == ("before", -8, 8)
    assert "side:underrun" in (done.report.verdict.advice or "" if done.report.verdict else "")


@pytest.mark.slow
def test_sampling_catches_an_error_that_happens_again_and_again(run: Path) -> None:
    """One storage in twenty is guarded: the first bad one among them ends the run, most are never guarded."""
    done = guarded("guard_overrun.py", "1024", "5000", run=run, words="sample:20")
    assert done.status == SIGSEGV
    report = done.report
    assert report.verdict is not None and report.verdict.class_ == "out-of-bounds"
    guard = guard_of(done)
    assert guard.every == 20 and 1 <= (guard.guarded or 0) < 5000


def test_sampling_guards_one_in_so_many(tmp_path: Path, run: Path) -> None:
    """The mean gap is the requested number, on every thread."""
    program = tmp_path / "many.py"
    text = "import torch\nfrom concurrent.futures import ThreadPoolExecutor as Pool\n"
    text += "work = lambda _: [torch.empty(64) for _ in range(20000)] and None\n"
    text += "with Pool(3) as p: list(p.map(work, range(3)))\n"
    program.write_text(text, encoding="utf-8")
    done = guarded(str(program), run=run, words="sample:50")
    assert done.status == 0, done.stderr
    assert 900 <= (guard_of(done).guarded or 0) <= 1500


@pytest.mark.parametrize(
    ("program", "verdict"), [("guard_overrun.py", "out-of-bounds"), ("guard_use_after_free.py", "use-after-free")]
)
@pytest.mark.quick(1)
def test_without_markers_pages_are_protected(program: str, verdict: str, run: Path) -> None:
    """Where the kernel has no MADV_GUARD_INSTALL, mprotect does the same; the signal's code differs."""
    done = guarded(program, "1024", run=run, words="all,mprotect")
    assert done.status == SIGSEGV
    report = done.report
    assert report.verdict is not None and report.verdict.class_ == verdict
    (process,) = report.processes or []
    assert process.signal is not None and process.signal.code == "SEGV_ACCERR"
    assert guard_of(done).mechanism == "protection"


@needs_memory_lock
@pytest.mark.slow
def test_memory_that_is_locked_later_stays_guarded(run: Path) -> None:
    """After mlockall() the kernel refuses markers: storages from before and after are still protected."""
    done = guarded("guard_locked.py", run=run)
    assert (done.status, done.stdout) == (SIGSEGV, "reading\n"), done.stderr
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("use-after-free", "certain")
    guard = guard_of(done)
    assert (guard.mechanism, guard.not_quarantined) == ("protection", 0)
    (process,) = report.processes or []
    assert any("mprotect instead" in note for note in process.notes or [])


@pytest.mark.parametrize(
    ("words", "kind"),
    [("all,bytes:100K", "bytes"), ("all,mprotect,mappings:20", "mappings"), ("all,mappings:0", "mappings")],
)
@pytest.mark.slow
def test_used_up_budget_leaves_storages_unguarded_and_says_so(
    words: str, kind: str, training: Callable[[str], str], run: Path
) -> None:
    """The program continues as without guards; the report counts the unguarded storages."""
    done = guarded("guard_training.py", "1", run=run, words=words)
    assert (done.status, done.stdout, done.stderr) == (0, training("1"), "")
    guard = guard_of(done)
    assert guard.unguarded is not None and guard.unguarded[kind] > 0
    assert sum(count for name, count in guard.unguarded.items() if name != kind) == 0
    (process,) = done.report.processes or []
    assert any("went unguarded: the budget of" in note for note in process.notes or [])


@pytest.mark.slow
def test_budget_bounds_memory_and_mappings(tmp_path: Path, run: Path) -> None:
    """As many live storages as the budgets allow are guarded, and no more."""
    program = tmp_path / "alive.py"
    text = (
        "import torch\nalive = [torch.zeros(64) for _ in range(1000)]\nprint(sum(1 for _ in open('/proc/self/maps')))\n"
    )
    program.write_text(text, encoding="utf-8")
    for words, kind in (("all,mprotect,mappings:100", "mappings"), ("all,bytes:200K", "bytes")):
        done = guarded(str(program), run=run.with_name(kind), words=words)
        assert done.status == 0
        guard = guard_of(done)
        assert guard.unguarded is not None and guard.unguarded[kind] == 950
        assert (guard.guarded or 0) >= 50 and (guard.most_bytes or 0) == 50 * 4096


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        *[("all", "1"), ("all", "2"), ("sample:5", "1"), ("sample:5", "2")],
        *[("all,mprotect", "1"), ("all,side:underrun", "2"), ("min-bytes:16K", "2"), ("all,align:16", "1")],
    ],
)
@pytest.mark.quick(1)
def test_numbers_are_the_same_to_the_last_bit(
    words: str, threads: str, training: Callable[[str], str], run: Path
) -> None:
    """Losses and weights of a training do not depend on guards."""
    done = guarded("guard_training.py", threads, run=run, words=words, OMP_NUM_THREADS=threads)
    assert (done.status, done.stdout, done.stderr) == (0, training(threads), "")
    assert (guard_of(done).guarded or 0) > 100


@pytest.mark.slow
@pytest.mark.parametrize("words", ["all", "all,mprotect"])
def test_whatever_handles_storages_works_as_before(words: str, run: Path) -> None:
    """share_memory_, resize_, set_, load, NumPy, DLPack, mkldnn, the memory profiler: the same output."""
    plain = victim("guard_users_of_storages.py", run=run, way="untraced")
    done = guarded("guard_users_of_storages.py", run=run, words=words)
    assert (done.status, done.stdout) == (0, plain.stdout), done.stderr
    assert guard_of(done).damaged == []
    assert (guard_of(done).guarded or 0) > 300


@pytest.mark.parametrize("words", ["all", "all,mprotect"])
@pytest.mark.quick(1)
def test_guards_hold_in_a_forked_child(words: str, run: Path) -> None:
    """What the parent freed faults in the child, whose own recording names both lines; both go on guarding."""
    done = guarded("guard_fork.py", run=run, words=words)
    assert (done.status, done.stdout) == (0, "child 11\n"), done.stderr
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("use-after-free", "certain")
    storage = storage_of(report)
    assert storage.freed is not None
    assert line(storage.freed.python, "guard_fork.py") == line_of("guard_fork.py", "    cache = None")


@pytest.mark.slow
def test_dataloader_workers_are_guarded(run: Path) -> None:
    """Their output is unchanged; a transform that writes too far is reported with its worker and sample."""
    plain = victim("guard_loader.py", run=run, way="untraced")
    done = guarded("guard_loader.py", run=run)
    assert (done.status, done.stdout) == (0, plain.stdout), done.stderr
    bad = guarded("guard_loader.py", "bad", run=run.with_name("bad"))
    assert bad.status == 1
    verdict = bad.report.verdict
    assert verdict is not None and verdict.class_ == "out-of-bounds"
    assert "DataLoader worker 0" in (verdict.summary or "") and "8-11" in (verdict.summary or "")


def test_enable_switches_it_on(tmp_path: Path, run: Path) -> None:
    """Without a launcher, and in child processes: the environment passes it on."""
    program = tmp_path / "enables.py"
    program.write_text(
        f"import sys, os, pytracer\npytracer.enable({str(run)!r}, guard='all')\nprint(os.environ['PYTRACER_GUARD'])\n"
        f"sys.argv = ['x', '1024']\nexec(open({str(PROGRAMS / 'guard_overrun.py')!r}).read())\n",
        encoding="utf-8",
    )
    done = victim(str(program), run=run, way="untraced")
    assert (done.status, done.stdout) == (SIGSEGV, "all\n")
    assert done.report.verdict is not None and done.report.verdict.class_ == "out-of-bounds"


def test_disable_leaves_guarded_storages_alone(tmp_path: Path, run: Path) -> None:
    """They are freed by the same code later; new ones are not guarded; enable() continues."""
    program = tmp_path / "toggles.py"
    program.write_text(
        f"import torch, pytracer\npytracer.enable({str(run)!r}, guard='all')\n"
        "from pytracer.record.core import core\nimport ctypes\n"
        "owns = lambda t: bool(core().lib.pytracer_guard_owns(ctypes.c_void_p(t.data_ptr())))\n"
        "a = [torch.ones(100) for _ in range(10)]\n"
        "d = [torch.UntypedStorage(400) for _ in range(10)]\nassert all(map(owns, d))\n"
        "pytracer.disable()\ndel d[:5]\nb = [torch.ones(100) for _ in range(10)]\ndel a[:5]\n"
        f"pytracer.enable({str(run)!r})\nc = torch.ones(100)\n"
        "print(sum(map(torch.sum, [*a, *b, c])).item(), all(map(owns, a)), any(map(owns, b)), owns(c))\n",
        encoding="utf-8",
    )
    done = victim(str(program), run=run, way="untraced")
    assert (done.status, done.stdout) == (0, "1600.0 True False True\n"), done.stderr
    assert (guard_of(done).quarantined or 0) >= 10


def test_words_nobody_knows_are_noted_and_change_nothing(run: Path) -> None:
    """A typing error in the environment does not stop a job."""
    done = guarded("guard_overrun.py", "1024", run=run, words="everything")
    assert done.status == 0
    (process,) = done.report.processes or []
    assert process.guard is None
    assert any("guard mode is off" in note and "'everything'" in note for note in process.notes or [])


@pytest.mark.slow
def test_healthy_guarded_run_is_clean(run: Path) -> None:
    """No finding where there is no error; the report states that guard mode was on."""
    done = guarded("guard_training.py", "1", run=run)
    report = done.report
    assert report.verdict is not None and report.verdict.class_ == "clean"
    (checked,) = [item for item in report.checked or [] if item.id == "guard-damage"]
    assert checked.why == "the bytes beside every guarded storage that was looked at were as they should be"
    assert sum((guard_of(done).unguarded or {"": 1}).values()) == 0
