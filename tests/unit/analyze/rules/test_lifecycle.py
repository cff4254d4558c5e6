"""dataloader-timeout, ended-itself with status 0, and the verdict on restarted jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer._errors import UsageError
from pytracer.analyze.engine import build_report
from pytracer.analyze.naming import indices_words
from pytracer.decode.types.snapshot import Job
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, STDCPP, Stack, died, evidence, finding, summary, verdict
from tests.support.synth import Box, Frame

DATALOADER = f"{s.TORCH}/utils/data/dataloader.py"
TRAIN: list[Frame] = [("train", s.SCRIPT, 12)]
EXIT = 6  # CrashState


def test_loader_that_gave_up_is_no_lost_peer(run: Path) -> None:
    """Without a recording of the workers the wait is known, and not what for."""
    error = ("RuntimeError", "DataLoader timed out after 30 seconds")
    box = Box(pid=101, ppid=99).at(500).exception(*error, [("_get_data", DATALOADER, 1449), *TRAIN]).exit(1)
    report = build_report(s.load(run, box))
    assert verdict(report) == ("python-exception", "likely")
    assert (
        summary(report)
        == "Process 101 (train.py) gave up after 30 s at train.py:12 in train: no DataLoader worker delivered a batch."
    )
    found = finding(report, "dataloader-timeout")
    assert found is not None and found.missing


def test_batch_that_was_dropped_is_what_the_loader_waited_for(run: Path) -> None:
    error = ("RuntimeError", "DataLoader timed out after 30 seconds")
    box = Box(pid=101, ppid=99).at(900).exception(*error, [("_get_data", DATALOADER, 1449), *TRAIN]).exit(1)
    feed: list[Frame] = [("Queue._feed", "/usr/lib/python3.11/multiprocessing/queues.py", 244)]
    worker = Box(pid=102, ppid=101).entry_of_worker(0, "Pages").at(500).sample("50 7-56").sample("")
    worker.exception("TypeError", "cannot pickle '_io.BufferedReader' object", feed, on_its_way="put").at(800).exit(0)
    report = build_report(s.load(run, box, worker))
    assert "DataLoader worker 0 (pid 102) could not send a batch, which was dropped: TypeError" in summary(report)


def test_warnings_of_the_functions_that_an_exception_left_are_evidence(run: Path) -> None:
    """Those of other functions, and of libraries, are only data."""
    script = run / "train.py"
    script.write_text("def load():\n    pass\ndef fit():\n    spread()\n    save()\n", encoding="utf-8")
    os.utime(script, (0, 0))
    said = [
        {"category": "UserWarning", "message": text, "file": file, "line": line}
        for text, file, line in (
            ("the array is read-only", str(script), 2),
            ("std(): degrees of freedom is <= 0. Correction. (Triggered internally at a.cpp:1)", str(script), 4),
            ("none of the inputs", f"{s.TORCH}/utils/checkpoint.py", 4),
        )
    ]
    box = Box(pid=101, ppid=99).at(500)
    report = build_report(
        s.load(run, box.exception("OSError", "disk", [("fit", str(script), 5)], warnings=said).exit(1))
    )
    found = [line for line in evidence(report).splitlines() if "had warned" in line]
    assert [line.strip() for line in found] == ['line 4 had warned before: "std(): degrees of freedom is <= 0"']
    error = (report.processes or [])[0].exception
    assert error is not None and [item.line for item in error.warnings or ()] == [2, 4, 4]


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ("8-15", "samples 8-15"),
        ("3,9,27", "samples 3,9,27"),
        ("933,641,748,506,112,374,166,15,...", "64 samples (933, 641, 748, ...)"),
        ("train/0001/left.png,train/0002/right.png", "samples train/0001/left.png,train/0002/right.png"),
    ],
)
def test_samples_of_a_shuffled_batch_are_short(indices: str, words: str) -> None:
    assert indices_words(64, indices) == words


def test_another_time_out_is_not_the_loaders(run: Path) -> None:
    """The look-alike: a queue of the program's own."""
    box = Box(pid=101, ppid=99).at(500).exception("RuntimeError", "loader queue timed out", TRAIN).exit(1)
    report = build_report(s.load(run, box))
    assert finding(report, "dataloader-timeout") is None
    assert verdict(report) == ("python-exception", "certain")


def uneven(run: Path, *, ending: bool = True, left: bool = False) -> Job:
    """Rank 1 ends with status 0 while rank 0 waits for it in a second all-reduce."""
    first, second = s.rank(0), s.rank(1)
    for box in (first, second):
        box.at(900).collective("gloo:all_reduce", sequence_nr=1, state="completed", group=box.group_seen("0", size=2))
    if left:
        second.at(1000).leaves()
    if ending:
        stack = [("/venv/lib/pytracer/libpytracer_core.so", 0x1000), (s.PYTHON, 0x1010)]
        second.at(1100).crash(0, code=0, state=EXIT, python=TRAIN, native=stack)
    second.at(1100).exit(0)
    first.at(1050).collective("gloo:all_reduce", sequence_nr=2, state="failed", group=first.group_seen("0", size=2))
    s.lost_peer(first.at(1200))
    return s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 0})), first, second)


def test_os_exit_0_of_an_awaited_rank_is_the_cause(run: Path) -> None:
    """It did not run out of batches: it called os._exit(0)."""
    report = build_report(uneven(run))
    assert verdict(report) == ("exit", "certain")
    assert summary(report) == "Rank 1 ended itself with exit status 0: os._exit() was called at train.py:12 in train."
    assert finding(report, "uneven-inputs") is None


@pytest.mark.parametrize("how", [{"ending": False}, {"left": True}], ids=["in order", "after leaving"])
def test_rank_that_left_in_order_had_fewer_batches(how: dict[str, bool], run: Path) -> None:
    """The look-alikes: sys.exit(), and os._exit(0) after destroy_process_group()."""
    report = build_report(uneven(run, **how))
    assert verdict(report)[0] == "missing-rank"
    assert finding(report, "uneven-inputs") is not None


_ENDED_THREAD: Stack = [
    (LIBC_SO, "abort"),
    (STDCPP, "std::terminate()"),
    (LIBC_SO, "pthread_exit"),
    (s.PYTHON, "PyEval_AcquireThread"),
]


@pytest.mark.parametrize("at_shutdown", [True, False])
def test_rank_that_torch_aborts_at_interpreter_shutdown_had_left(run: Path, at_shutdown: bool) -> None:
    """pytorch/pytorch#190489 after an early end: that the others waited for it is the cause. Not so in mid-work."""
    waiting = s.rank(0)
    left = Box(pid=102, ppid=99, rank=1)
    for box in (waiting, left):
        box.at(100).collective("gloo:all_reduce", sequence_nr=1, state="completed", group=box.group_seen("0", size=2))
    waiting.at(300).collective("gloo:all_reduce", sequence_nr=2, state="failed", group=waiting.group_seen("0", size=2))
    s.lost_peer(waiting.at(700))
    stack = _ENDED_THREAD if at_shutdown else [*_ENDED_THREAD[:2], (s.VICTIM, "Loader::check()")]
    aborted: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 102, "stack_of": stack, "python": []}
    report = died(run, waiting, box=left, **aborted)
    assert report.verdict is not None and report.verdict.rank == 1
    assert report.verdict.class_ == ("missing-rank" if at_shutdown else "abort")


def worker(attempt: int, number: int = 0, **more: Any) -> Box:
    """A worker of torchrun's agent, in its place after `attempt` restarts."""
    environment = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }  # fmt: skip
    pid = 200 + 10 * number + attempt
    box = Box(
        pid=pid,
        ppid=100,
        environment=environment,
        start_ticks=1000 + pid,
        created_ns=5_000_000_000 + pid * 10**9,
        **more,
    )
    return box.versions(python="3.11.7", torch="2.13.0")


def crashed(box: Box) -> Box:
    return box.at(100).crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])


def crashed_at_once(box: Box) -> Box:
    return box.crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])


def raised(box: Box, message: str = "[Errno 111] Connection refused") -> Box:
    return box.at(100).exception("ConnectionRefusedError", message, TRAIN).exit(1)


def test_job_that_a_restart_saved_has_recovered(run: Path) -> None:
    """Two crashes, then an attempt that ended well."""
    job = s.load(run, s.agent(code=0), crashed(worker(0)), raised(worker(1)), worker(2).at(100).exit(0))
    report = build_report(job)
    assert verdict(report) == ("recovered", "certain")
    assert "recovered after 2 crashes" in summary(report) and "attempt 2 ended well" in summary(report)
    assert [item.attempt for item in report.attempts or []] == [0, 1]
    alone = build_report(job, 0)
    assert verdict(alone)[0] == "null-dereference" and alone.attempts == []
    assert summary(build_report(job, -1)).startswith("Nothing died")
    with pytest.raises(UsageError, match="there is no attempt 3: the run has attempts 0 to 2"):
        build_report(job, 3)


def test_first_cause_leads_when_restarts_are_used_up(run: Path) -> None:
    """The last attempt's refused connection only followed."""
    report = build_report(s.load(run, s.agent(), crashed(worker(0)), raised(worker(1))))
    assert verdict(report)[0] == "null-dereference"
    assert report.verdict is not None and report.verdict.attempt == 0
    assert [item.attempt for item in report.attempts or []] == [1]


def test_attempt_without_a_cause_does_not_lead(run: Path) -> None:
    """The look-alike: the first attempt was ended from outside; the second one failed by itself."""
    ended = worker(0).at(100).signal_seen(15, 7, ["kill"])
    report = build_report(s.load(run, s.agent((200, {"signal": 15})), ended, raised(worker(1), "no such bucket")))
    assert report.verdict is not None and report.verdict.attempt == 1
    assert verdict(report)[0] == "python-exception"


def test_attempt_that_was_ended_from_outside_leads_a_connection_that_was_refused_after_it(run: Path) -> None:
    """After a restart a rank finds no peer: nothing is known of the reason, but of the attempt before."""
    ended = worker(0).at(100).signal_seen(15, 7, ["kill"])
    refused = raised(
        worker(1), "Gloo connectFullMesh failed with [/gloo/transport/tcp/pair.cc:152] SO_ERROR: Connection refused"
    )
    agent = s.agent((200, {"signal": 15}), (201, {"exit_code": 1}), at=500_000)
    report = build_report(s.load(run, agent, ended, refused))
    assert report.verdict is not None and report.verdict.attempt == 0
    assert verdict(report) == ("external-kill", "certain")


@pytest.mark.parametrize("at_once", [True, False])
def test_job_that_failed_beside_another_one_leads(at_once: bool, run: Path) -> None:
    """Two jobs with one PYTRACER_DIR; in turn, the last one counts."""
    boxes = []
    for job in (0, 1):
        names = {"SLURM_JOB_ID": str(77 + job), "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        created_ns = 5_000_000_000 + job * (10 if at_once else 100) * 10**9
        box = Box(pid=201 + job, ppid=7, environment=names, created_ns=created_ns, start_ticks=created_ns // 10**7)
        boxes.append(box.versions(python="3.11.7", torch="2.13.0").at(50_000))
    report = build_report(s.load(run, crashed_at_once(boxes[0]), boxes[1].exit(0)))
    assert verdict(report)[0] == ("null-dereference" if at_once else "clean")
    assert len(report.attempts or []) == 1


def test_jobs_of_a_sequence_are_no_restarts(run: Path) -> None:
    """The look-alike: a script runs torchrun twice; each counts from 0."""
    report = build_report(s.load(run, s.agent(code=0), crashed(worker(0)), worker(0, 1).at(100).exit(0)))
    assert verdict(report)[0] == "clean"


# ---- exceptions of others ----

ORIGINAL = f"""Original Traceback (most recent call last):
  File "{s.TORCH}/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "{s.SCRIPT}", line 18, in __getitem__
    return torch.tensor(row["text"]), self.labels[row["label"]]
                                      ~~~~~~~~~~~^^^^^^^^^^^^^^
"""


def raised_again(run: Path, message: str) -> Report:
    frames: list[Frame] = [("ExceptionWrapper.reraise", f"{s.TORCH}/_utils.py", 794), *TRAIN]
    return build_report(s.load(run, Box(pid=101, ppid=99).at(500).exception("KeyError", message, frames).exit(1)))


def test_exception_of_a_loader_worker_is_named_with_the_line_that_raised_it(run: Path) -> None:
    report = raised_again(run, f"Caught KeyError in DataLoader worker process 1.\n{ORIGINAL}KeyError: 'goood'\n")
    assert verdict(report) == ("python-exception", "certain")
    assert (
        summary(report) == "Process 101 (train.py) raised KeyError: 'goood' in DataLoader worker process 1, "
        "at train.py:18 in __getitem__ (raised again at train.py:12 in train)."
    )
    assert "at the sample that it was given" in (report.verdict.advice or "" if report.verdict else "")


@pytest.mark.parametrize(
    "message",
    ["Caught KeyError in DataLoader worker process 1.\nOriginal Traceback (most", "Caught by hand.\n" + ORIGINAL],
)
def test_text_without_a_whole_traceback_of_another_exception_is_only_a_text(message: str, run: Path) -> None:
    """The look-alikes: cut off, or written by the program itself."""
    report = raised_again(run, message)
    assert summary(report).endswith(" at train.py:12 in train.")
    assert "train.py:18" not in summary(report)


REMOTE = f"""Traceback (most recent call last):
  File "/usr/lib/python3.11/concurrent/futures/process.py", line 256, in _process_worker
    r = call_item.fn(*call_item.args, **call_item.kwargs)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{s.SCRIPT}", line 18, in decode
    raise ValueError("label 11")
ValueError: label 11
"""


def test_exception_of_a_pools_process_is_named_with_the_line_that_raised_it(run: Path) -> None:
    box = Box(pid=101, ppid=99).at(500)
    box.exception("ValueError", "label 11", TRAIN, remote_traceback=f'\n"""\n{REMOTE}"""').exit(1)
    report = build_report(s.load(run, box))
    assert verdict(report) == ("python-exception", "certain")
    assert (
        summary(report) == "Process 101 (train.py) raised ValueError: label 11 in a process of the pool, "
        "at train.py:18 in decode (raised again at train.py:12 in train)."
    )


def test_exception_with_a_remote_traceback_that_was_cut_off_is_only_an_exception(run: Path) -> None:
    """The look-alike."""
    box = Box(pid=101, ppid=99).at(500)
    box.exception("ValueError", "label 11", TRAIN, remote_traceback=REMOTE.partition("ValueError")[0]).exit(1)
    assert (
        summary(build_report(s.load(run, box)))
        == "Process 101 (train.py) raised ValueError: label 11 at train.py:12 in train."
    )


def ray_driver(run: Path, pid: int, kind: str = "ray.exceptions.RayTaskError(ValueError)") -> Report:
    """Rank 1 is an actor that lives on after its exception, as Ray's do."""
    told = f"\x1b[36mray::Learner.fit()\x1b[39m (pid={pid}, ip=10.0.0.1, actor_id=1, repr=<Learner>)\n"
    driver = Box(pid=90, ppid=80).at(500).exception(kind, told + REMOTE, TRAIN).exit(1)
    return build_report(s.load(run, driver, s.rank(1).at(600).exit(0)))


def test_exception_that_ray_passed_on_is_the_actors(run: Path) -> None:
    """Not the driver's, which is the only process that died."""
    actor = s.rank(1).pid
    report = ray_driver(run, actor)
    assert verdict(report) == ("python-exception", "certain")
    assert report.verdict is not None and (report.verdict.rank, report.verdict.pid) == (1, actor)
    assert (
        summary(report) == "Rank 1 raised ValueError: label 11 in ray::Learner.fit(), at train.py:18 in decode "
        "(raised again by process 90 (train.py) at train.py:12 in train)."
    )


def test_exception_that_ray_passed_on_from_elsewhere_is_the_drivers(run: Path) -> None:
    """The look-alike: no recording of the actor."""
    report = ray_driver(run, 4711)
    assert report.verdict is not None and (report.verdict.rank, report.verdict.pid) == (None, 90)
    assert summary(report).startswith(
        "Process 90 (train.py) raised ValueError: label 11 in ray::Learner.fit(), at train.py:18"
    )


@pytest.mark.parametrize(("ranks", "found"), [(["1"], 1), (["0", "1"], None), (["0,1"], None)])
def test_exception_of_ray_trains_loop_is_the_ranks(ranks: list[str], found: int | None, run: Path) -> None:
    """The look-alikes: ranks that each raised something, and ranks that raised the same."""
    told = "\n".join(f"[Rank {rank} Error Snippet]:\n{REMOTE}" for rank in ranks)
    driver = Box(pid=90, ppid=80).at(500)
    driver.exception("ray.train.WorkerGroupError", f"Training failed due to worker errors:\n{told}", TRAIN).exit(1)
    report = build_report(s.load(run, driver, s.rank(0).at(600).exit(0), s.rank(1).at(600).exit(0)))
    assert report.verdict is not None and report.verdict.rank == found
    assert ("at train.py:18 in decode (raised again by process 90" in summary(report)) == (found is not None)


def test_text_like_rays_in_another_exception_is_only_a_text(run: Path) -> None:
    """The look-alike: the program prints what it caught."""
    report = ray_driver(run, s.rank(1).pid, "RuntimeError")
    assert report.verdict is not None and report.verdict.pid == 90
    assert "train.py:18" not in summary(report)


def killed_child(run: Path, error: str) -> Report:
    parent = Box(pid=101, ppid=99).at(6000).wait(102, signal=9).at(6010).exception(error, "timed out", TRAIN).exit(1)
    return build_report(s.load(run, parent, Box(pid=102, ppid=101).at(500).mark("begin")))


def test_child_whose_parents_timeout_passed_was_killed_by_it(run: Path) -> None:
    report = killed_child(run, "subprocess.TimeoutExpired")
    assert verdict(report) == ("external-kill", "likely")
    assert "had waited as long as its timeout allows at train.py:12 in train" in summary(report)


def test_parent_that_raised_something_else_is_no_sender(run: Path) -> None:
    report = killed_child(run, "subprocess.CalledProcessError")
    assert "timeout allows" not in summary(report)
    assert verdict(report)[0] != "external-kill"
