"""`load_job`: which recordings belong to a run, what each process is, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from pytracer._errors import InputError
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job, Process
from tests.support.synth import MS, Box, write_run

TORCHRUN = ("python", "/usr/bin/torchrun", "--nproc-per-node", "2", "train.py")


def roles(job: Job) -> dict[int, tuple[str, int | None]]:
    return {p.snapshot.pid: (p.role, p.rank) for p in job.processes}


def process(job: Job, pid: int) -> Process:
    (found,) = [p for p in job.processes if p.snapshot.pid == pid]
    return found


def env_rank(rank: int, **more: str) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", **more}


# Roles


def test_torchrun_job_has_launcher_ranks_and_children(tmp_path: Path) -> None:
    """Children of a rank inherit its RANK and are no ranks; a DataLoader worker is recognized by the code it ran."""
    agent = Box(pid=100, ppid=99, argv=TORCHRUN)
    zero, one = Box(pid=101, ppid=100, rank=0), Box(pid=102, ppid=100, rank=1)
    worker = zero.fork(103)
    worker.alloc(0x7F0000000000, 64, by=("_worker_loop", "/x/torch/utils/data/_utils/worker.py", 300))
    helper = Box(pid=104, ppid=102, argv=("sh", "-c", "uname"), environment=env_rank(1))
    job = load_job(write_run(tmp_path, agent, zero, one, worker, helper))
    assert roles(job) == {
        100: ("launcher", None),
        101: ("rank", 0),
        102: ("rank", 1),
        103: ("dataloader-worker", None),
        104: ("child", None),
    }
    assert [(p.rank, p.local_rank, p.world_size) for p in job.ranks] == [(0, 0, 2), (1, 1, 2)]


def test_rank_that_died_before_init_is_known_by_its_environment(tmp_path: Path) -> None:
    """No RANK entry was written yet."""
    agent = Box(pid=100, ppid=99, argv=TORCHRUN)
    early = Box(pid=101, ppid=100, environment=env_rank(0))
    assert roles(load_job(write_run(tmp_path, agent, early, Box(pid=102, ppid=100, rank=1))))[101] == ("rank", 0)


def test_shell_around_a_rank_is_not_the_rank(tmp_path: Path) -> None:
    """Both have RANK; with or without a RANK entry it is the Python process that counts."""
    for directory, python in (
        ("before-init", Box(pid=102, ppid=101, environment=env_rank(0))),
        ("after-init", Box(pid=102, ppid=101, rank=0)),
    ):
        shell = Box(pid=101, ppid=1, argv=("bash", "train.sh"), environment=env_rank(0), python_minor=0)
        job = load_job(write_run(tmp_path / directory, shell, python))
        assert roles(job) == {101: ("launcher", None), 102: ("rank", 0)}


def test_spawned_ranks_without_environment_are_ranks(tmp_path: Path) -> None:
    """mp.spawn sets no RANK; the process's own RANK entry has it. The parent launched them."""
    parent = Box(pid=100, ppid=1)
    job = load_job(write_run(tmp_path, parent, *(Box(pid=101 + i, ppid=100).rank(i) for i in range(2))))
    assert roles(job) == {100: ("launcher", None), 101: ("rank", 0), 102: ("rank", 1)}


def test_forked_child_does_not_inherit_the_rank_entry(tmp_path: Path) -> None:
    """The copied journal holds it, but it is older than the child's recording."""
    rank = Box(pid=101, ppid=1).rank(0)
    job = load_job(write_run(tmp_path, rank, rank.fork(102)))
    assert roles(job) == {101: ("rank", 0), 102: ("child", None)}


def test_restarted_rank_appears_twice(tmp_path: Path) -> None:
    """The first attempt died before init, the second got further: both are rank 1."""
    agent = Box(pid=100, ppid=99, argv=TORCHRUN)
    first = Box(pid=101, ppid=100, environment=env_rank(1))
    second = Box(pid=105, ppid=100, rank=1, created_ns=9_000_000_000)
    assert [p.snapshot.pid for p in load_job(write_run(tmp_path, agent, first, second)).ranks] == [101, 105]


def test_plain_script_and_its_children(tmp_path: Path) -> None:
    """A job without ranks: the script is a process, what it starts are children; a shell around it does not count."""
    shell = Box(pid=100, ppid=1, argv=("bash", "x.sh"), python_minor=0)
    script, child = Box(pid=101, ppid=100), Box(pid=102, ppid=101, argv=("sh",), python_minor=0)
    compiler = Box(pid=103, ppid=102, argv=("gcc",), python_minor=0)
    job = load_job(write_run(tmp_path, shell, script, child, compiler))
    assert {pid: role for pid, (role, _) in roles(job).items()} == {
        100: "process",
        101: "process",
        102: "child",
        103: "child",
    }


def test_pid_used_again_is_another_process(tmp_path: Path) -> None:
    """The start time distinguishes them; the parent is the one that lived at that time."""
    old = Box(pid=101, ppid=1, start_ticks=10, environment=env_rank(0))
    new = Box(pid=101, ppid=1, start_ticks=5000, created_ns=60_000_000_000)
    child = Box(pid=102, ppid=101, start_ticks=6000, created_ns=70_000_000_000, environment=env_rank(0))
    old.write(tmp_path / "node0.101.blackbox")
    new.write(tmp_path / "node0.101.1.blackbox")
    child.write(tmp_path / "node0.102.blackbox")
    job = load_job(tmp_path)
    assert len(job.processes) == 3
    assert process(job, 102).role == "rank"


def test_exec_replaces_the_earlier_box(tmp_path: Path) -> None:
    """Same pid and start time: one process; the last recording is its final program; earlier waits count."""
    shell = Box(pid=101, ppid=1, argv=("sh",), python_minor=0).wait(150, exit_code=4)
    shell.write(tmp_path / "node0.101.blackbox")
    Box(pid=101, ppid=1, rank=0, created_ns=6_000_000_000).write(tmp_path / "node0.101.1.blackbox")
    Box(pid=150, ppid=101, created_ns=5_000_000_000).write(tmp_path / "node0.150.blackbox")
    job = load_job(tmp_path)
    assert sorted(roles(job)) == [101, 150]
    assert process(job, 101).role == "rank"
    assert job.replaced_by_exec == (str(tmp_path / "node0.101.blackbox"),)


# Endings


def test_crash_section_beats_all_other_witnesses(tmp_path: Path) -> None:
    """The handler records the time."""
    child = Box(pid=101, ppid=100).at(500).crash(signal=11)
    parent = Box(pid=100, ppid=1).at(900).wait(101, signal=11)
    p = process(load_job(write_run(tmp_path, parent, child)), 101)
    assert (p.status_kind, p.signal, p.exit_code, p.reported_by) == ("signaled", 11, None, "handler")
    assert p.snapshot.crash is not None and p.ended_mono_ns == p.snapshot.crash.mono_ns


def test_repaired_crash_is_no_end(tmp_path: Path) -> None:
    """Another handler repaired the fault and the process continued to exit."""
    p = process(load_job(write_run(tmp_path, Box(pid=101).crash(state=4).exit(0))), 101)
    assert (p.status_kind, p.exit_code, p.signal) == ("exited", 0, None)


def test_parent_reports_kill_and_exit_code(tmp_path: Path) -> None:
    """SIGKILL leaves nothing in the recording of the one that died."""
    parent = Box(pid=100, ppid=1).at(900).wait(101, signal=9).wait(102, exit_code=5)
    job = load_job(write_run(tmp_path, parent, Box(pid=101, ppid=100), Box(pid=102, ppid=100).exit(5)))
    killed, exited = process(job, 101), process(job, 102)
    assert (killed.status_kind, killed.signal, killed.reported_by) == ("signaled", 9, "black-box")
    assert killed.ended_mono_ns is not None
    assert (exited.status_kind, exited.exit_code, exited.reported_by) == ("exited", 5, "black-box")


def test_wait_of_an_earlier_process_with_the_same_pid_is_not_taken(tmp_path: Path) -> None:
    """It happened before this recording was made."""
    parent = Box(pid=100, ppid=1).at(1).wait(101, signal=9)
    later = Box(pid=101, ppid=100, created_ns=parent.created_ns + 500 * MS)
    assert process(load_job(write_run(tmp_path, parent, later)), 101).status_kind == "vanished"


def test_inherited_wait_is_not_taken(tmp_path: Path) -> None:
    """A forked child's journal repeats what its parent reaped."""
    parent = Box(pid=100, ppid=1).at(1).wait(101, signal=9)
    child = parent.fork(102)
    reborn = Box(pid=101, ppid=102, created_ns=parent.created_ns)
    (tmp_path / "x").mkdir()
    job = load_job(write_run(tmp_path / "x", child, reborn))
    assert process(job, 101).status_kind == "vanished"


def test_launcher_reports_its_own_child(tmp_path: Path) -> None:
    """`run.json` has the status that no recording has."""
    box = Box(pid=101, ppid=99)
    launcher = {"child_pid": 101, "signal": 9, "ended_mono_ns": box.created_ns + 900 * MS}
    job = load_job(write_run(tmp_path, box, launcher=launcher))
    p = process(job, 101)
    assert (p.status_kind, p.signal, p.reported_by) == ("signaled", 9, "launcher")
    assert job.launcher is not None and job.launcher.command == ("python", "train.py")


def test_exit_is_known_from_the_box_itself(tmp_path: Path) -> None:
    """exit() was called, without a wait by the parent."""
    p = process(load_job(write_run(tmp_path, Box(pid=101).at(7).exit(0))), 101)
    assert (p.status_kind, p.exit_code, p.reported_by) == ("exited", 0, "black-box")
    assert p.ended_mono_ns == p.snapshot.exit_mono_ns


def test_uncaught_exception_names_the_end(tmp_path: Path) -> None:
    """An EXCEPTION entry and an exit code that is not 0; the main thread's is first."""
    box = Box(pid=101).exception("ValueError", "bad", [("f", "t.py", 3)]).exception("KeyError", "k", thread="Thread-1")
    p = process(load_job(write_run(tmp_path, box.exit(1))), 101)
    assert (p.status_kind, p.exit_code) == ("exception", 1)
    assert p.exception is not None and p.exception.type == "ValueError"


def test_exception_of_the_parent_is_not_the_childs(tmp_path: Path) -> None:
    """Inherited by fork."""
    child = Box(pid=101).exception("ValueError", "bad").fork(102).exit(1)
    p = process(load_job(write_run(tmp_path, child)), 102)
    assert (p.status_kind, p.exception) == ("exited", None)


def test_process_that_is_alive_is_running(tmp_path: Path) -> None:
    """Same boot, pid and start time; one tick of difference is another process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    for shift, kind in ((0, "running"), (1, "vanished")):
        box = Box(pid=os.getpid(), boot_id=boot, start_ticks=ticks + shift)
        assert load_job(write_run(tmp_path / kind, box)).processes[0].status_kind == kind


def test_process_that_ends_while_its_recording_is_read_has_not_vanished(tmp_path: Path) -> None:
    """It was alive when its file was read; a Ray actor may take seconds to end after the job."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with subprocess.Popen(["sleep", "60"]) as child:
        ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])

        def ends(done: int, total: int) -> None:
            child.kill()
            child.wait()

        run = write_run(tmp_path, Box(pid=child.pid, boot_id=boot, start_ticks=ticks))
        assert load_job(run, ends).processes[0].status_kind == "running"
        assert load_job(run).processes[0].status_kind == "vanished"


# Files


def test_one_box_file_is_a_job(tmp_path: Path) -> None:
    """RUN may be a single black box."""
    job = load_job(Box(pid=101, rank=1).write(tmp_path / "node0.101.blackbox"))
    assert (len(job.processes), job.launcher, job.directory) == (1, None, str(tmp_path.resolve()))


def test_one_unreadable_box_among_several_is_damage(tmp_path: Path) -> None:
    """The others are read."""
    write_run(tmp_path, Box(pid=101))
    (tmp_path / "boxes" / "node0.102.blackbox").write_bytes(b"")
    job = load_job(tmp_path)
    assert len(job.processes) == 1
    assert [d.file for d in job.damage] == ["node0.102.blackbox"]
    assert "is empty" in job.damage[0].what


def test_no_readable_box_is_an_error(tmp_path: Path) -> None:
    """With the reason of the first one."""
    for name in ("a.blackbox", "b.blackbox"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"none of the 2 black boxes.*a\.blackbox is empty"):
        load_job(tmp_path)


def test_empty_directory_says_what_makes_a_run(tmp_path: Path) -> None:
    """For a directory of runs the error asks to name one."""
    with pytest.raises(InputError, match=r"no black boxes in .*pytracer run -- COMMAND"):
        load_job(tmp_path)
    write_run(tmp_path / "runs" / "one", Box())
    with pytest.raises(InputError, match=r"holds a run, not one.*runs/one"):
        load_job(tmp_path / "runs")


def test_missing_run_and_dangling_link_are_told(tmp_path: Path) -> None:
    """`runs/latest` may point to a run that was removed."""
    (tmp_path / "latest").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"latest points to .*gone, which does not exist"):
        load_job(tmp_path / "latest")
    with pytest.raises(InputError, match="nothing does not exist"):
        load_job(tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pid": "x"}', b"\xff", b"[" * 100_000])
def test_broken_run_json_is_damage(tmp_path: Path, content: bytes) -> None:
    """The recordings suffice."""
    write_run(tmp_path, Box())
    (tmp_path / "run.json").write_bytes(content)
    job = load_job(tmp_path)
    assert job.launcher is None
    assert [d.file for d in job.damage] == ["run.json"]


def test_newer_run_json_with_more_keys_is_read(tmp_path: Path) -> None:
    """Unknown keys are skipped."""
    write_run(tmp_path, Box(), launcher={"later": [1]})
    assert load_job(tmp_path).launcher is not None


def test_progress_counts_boxes(tmp_path: Path) -> None:
    """Called after each recording."""
    seen: list[tuple[int, int]] = []
    write_run(tmp_path, Box(pid=101), Box(pid=102))
    load_job(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_header_cut_off_is_one_process_of_unknown_pid(tmp_path: Path) -> None:
    """Two of them are not taken for one."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.blackbox").write_bytes(Box().content()[:20])
    assert len(load_job(tmp_path).processes) == 2


def test_symbols_file_gives_names_without_the_images(tmp_path: Path) -> None:
    """A run directory that was copied to another machine keeps its names."""
    box = Box().crash(native=[("/gone/libx.so", 0x1100)], build_ids={"/gone/libx.so": b"\x01" * 20})
    write_run(tmp_path, box)
    (tmp_path / "symbols.json").write_text(json.dumps({"01" * 20 + ":0x1100": "x::f()", "junk": 3}))
    crash = load_job(tmp_path).processes[0].snapshot.crash
    assert crash is not None and crash.native_stack[0].function == "x::f()"


def test_crash_that_the_program_survived_is_no_end(tmp_path: Path) -> None:
    """Its own handler left by siglongjmp(); the parent saw exit code 0. With another code the crash stays the end."""
    for code, kind in ((0, "exited"), (1, "signaled")):
        parent = Box(pid=100, ppid=1).at(900).wait(101, exit_code=code)
        p = process(load_job(write_run(tmp_path / kind, parent, Box(pid=101, ppid=100).crash(state=3))), 101)
        assert (p.status_kind, p.exit_code) == (kind, code)


SURVIVED = [
    ({"signal": 6, "code": -6}, 9, 60_000, True, "raise(SIGABRT) was handled; SIGKILL a minute later"),
    ({"signal": 6, "code": -6}, 9, 500, True, "the same, soon after"),
    ({"signal": 6, "code": -6}, 6, 60_000, False, "the same signal"),
    ({"signal": 11}, 9, 60_000, True, "left by siglongjmp(); SIGKILL much later"),
    ({"signal": 11}, 9, 500, False, "killed while it took long to die"),
    ({"signal": 11}, 6, 500, False, "a handler of the program called abort()"),
    ({"signal": 6, "code": -6, "state": 1}, 9, 500, False, "killed while the handler was at work"),
    ({"signal": 6, "code": -6, "steps_done": 0x10FF}, 9, 60_000, False, "past the last chance to survive"),
]


@pytest.mark.parametrize(("crash", "ending", "at", "survived", "why"), SURVIVED, ids=[case[-1] for case in SURVIVED])
@pytest.mark.parametrize("by", ["parent", "launcher"])
def test_another_end_tells_that_a_crash_was_survived(
    crash: dict[str, int], ending: int, at: int, survived: bool, why: str, by: str, tmp_path: Path
) -> None:
    """The handler does not always know; the process that waited for it may."""
    child = Box(pid=101, ppid=100).at(100).crash(**crash)  # type: ignore[arg-type]
    if by == "parent":
        job = load_job(write_run(tmp_path, Box(pid=100, ppid=1).at(at).wait(101, signal=ending), child))
    else:
        record = {"child_pid": 101, "signal": ending, "ended_mono_ns": child.created_ns + at * MS}
        job = load_job(write_run(tmp_path, child, launcher=record))
    p = process(job, 101)
    assert p.snapshot.crash is not None and p.snapshot.crash.repaired == survived, why
    expected = (ending, "black-box" if by == "parent" else "launcher") if survived else (crash["signal"], "handler")
    assert (p.status_kind, p.signal, p.reported_by) == ("signaled", *expected)


def test_a_thread_that_works_on_has_survived_its_crash(tmp_path: Path) -> None:
    """Records of the crashed thread after the crash; those of other threads prove nothing."""
    for tid, kind in ((101, "exited"), (102, "signaled")):
        child = Box(pid=101, ppid=100).at(100).crash(11, state=3).at(200).mark("on", tid=tid)
        parent = Box(pid=100, ppid=1).at(300).wait(101, exit_code=1)
        p = process(load_job(write_run(tmp_path / kind, parent, child)), 101)
        assert (p.status_kind, p.exit_code) == (kind, 1)


def test_dataloader_worker_is_told_by_its_thread_or_its_stack(tmp_path: Path) -> None:
    """torch names the worker's main thread; a crash inside the worker loop shows it as well."""
    rank = Box(pid=101, ppid=1).rank(0)
    named, crashed, other = rank.fork(102), rank.fork(103), rank.fork(104)
    named.threads[0].name = "pt_data_worker"
    crashed.crash(python=[("D.__getitem__", "d.py", 3), ("_worker_loop", "/x/torch/utils/data/_utils/worker.py", 300)])
    job = load_job(write_run(tmp_path, rank, named, crashed, other.crash(python=[("f", "d.py", 3)])))
    assert [roles(job)[pid][0] for pid in (102, 103, 104)] == ["dataloader-worker", "dataloader-worker", "child"]


def test_exception_counts_from_the_moment_when_it_was_first_seen(tmp_path: Path) -> None:
    """It was propagating while `finally` left the process group, and reached the top three seconds later."""
    box = Box(pid=101, rank=0).at(500).leaves(("ValueError", "bad"), [("main", "train.py", 3)])
    box.at(3500).exception("ValueError", "bad", [("main", "train.py", 3), ("<module>", "train.py", 9)]).exit(1)
    p = process(load_job(write_run(tmp_path, box)), 101)
    assert p.exception is not None and len(p.exception.python_stack) == 2
    assert p.exception_mono_ns is not None and p.exception_mono_ns < box.created_ns + 501 * MS


def test_exception_that_never_reached_the_top_is_known(tmp_path: Path) -> None:
    """The launcher ended the process in its cleanup. With another exception on top, the first one is the cause."""
    for name in ("term", "other"):
        parent = (
            Box(pid=100, ppid=1)
            .at(900)
            .wait(101, signal=15 if name == "term" else None, exit_code=None if name == "term" else 1)
        )
        box = Box(pid=101, ppid=100, rank=0).at(500).leaves(("ValueError", "bad")).at(800)
        if name == "other":
            box.exception("OSError", "disk").exit(1)
        p = process(load_job(write_run(tmp_path / name, parent, box)), 101)
        assert p.exception is not None and p.exception.type == "ValueError"


def test_exception_that_was_caught_after_all_is_none(tmp_path: Path) -> None:
    """The program left one process group, created another and continued; it ended for another reason."""
    box = Box(pid=101, rank=0).at(500).leaves(("ValueError", "bad")).at(600).rank(0).at(900).exit(1)
    assert process(load_job(write_run(tmp_path, box)), 101).exception is None


def test_what_a_process_used_is_known_from_its_parent(tmp_path: Path) -> None:
    """Processor time and memory from the parent's wait; waitid() does not return them."""
    parent = Box(pid=100, ppid=1).at(900).wait(101, exit_code=0).wait(102, signal=9, waitid=True)
    job = load_job(write_run(tmp_path, parent, Box(pid=101, ppid=100), Box(pid=102, ppid=100)))
    used = {process.snapshot.pid: process.usage for process in job.processes}
    assert used[101] is not None
    assert (used[101].maxrss, used[101].user_seconds, used[101].major_faults) == (81_920 * 1024, 1.5, 3)
    assert used[102] is None


def test_ranks_share_one_list_of_the_members_of_their_group(tmp_path: Path) -> None:
    """Of n ranks, n lists of n members would be n squared in memory, and in every dict that has them as a key."""
    boxes = [Box(pid=100 + rank, rank=rank).group("0", range(2)) for rank in range(2)]
    first, second = (found.snapshot.groups[0].ranks for found in load_job(write_run(tmp_path, *boxes)).ranks)
    assert first == (0, 1)
    assert first is second
