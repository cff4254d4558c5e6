"""A process has no file until there is something to record; one that cannot record runs as untraced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.decode.job.run_counters import read_run_counters
from tests.conditions import needs_compiler, needs_core
from tests.native.harness import Native
from tests.support.crash import Ended, ended, traced_run

pytestmark = needs_core

BOX = "path = ctypes.c_char_p(core.pytracer_black_box_path()).value\n"
TYPES = "core.pytracer_black_box_path.restype = ctypes.c_void_p\n"


def names(native: Native) -> list[str]:
    return sorted(path.name for path in (native.run / "boxes").iterdir())


def shell(native: Native, script: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """`script` by bash, preloaded as under a launcher; `PYTRACER_LAUNCHER=""` is without one."""
    env = native.env() | extra
    if not env["PYTRACER_LAUNCHER"]:
        del env["PYTRACER_LAUNCHER"]
    native.run.parent.mkdir(parents=True, exist_ok=True)
    return subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)


def missed(run: Path) -> dict[str, int]:
    (counters,) = read_run_counters(run)
    return dict(counters.unrecorded)


def test_commands_of_a_shell_leave_one_small_box(native: Native) -> None:
    """A loop of a hundred commands: the shell, the run's first process, has a recording; the commands have none."""
    done = shell(native, "for i in $(seq 100); do /bin/true; done; for i in $(seq 20); do /bin/false; done; exit 0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(names(native)) == 1
    on_disk = sum(path.stat().st_blocks * 512 for path in native.run.rglob("*"))
    assert on_disk < 1 << 20
    (counters,) = read_run_counters(native.run)
    assert counters.processes >= 121 and counters.boxes == 1 and counters.line is None


def test_killed_command_without_a_box_is_in_the_job(native: Native) -> None:
    """Its parent recorded its death, the counters have its name. Its killer is not recorded: else it would have one."""
    done = shell(native, "sh -c 'LD_PRELOAD= sh -c \"kill -9 \\$PPID\"; true'; true")
    assert done.returncode == 0
    assert len(names(native)) == 1
    (killed,) = [p for p in load_job(native.run).processes if p.status_kind == "signaled"]
    assert (killed.signal, killed.snapshot.argv, killed.reported_by) == (9, ("sh",), "black-box")


def test_command_that_kills_itself_has_a_small_box(native: Native) -> None:
    """Nobody else would know who did it."""
    done = shell(native, "sh -c 'kill -9 $$'; true")
    assert done.returncode == 0
    (killed,) = [p for p in load_job(native.run).processes if p.status_kind == "signaled"]
    assert [(send.signal, send.target) for send in killed.snapshot.sends] == [(9, killed.snapshot.pid)]
    assert sum(path.stat().st_blocks * 512 for path in native.run.rglob("*")) < 1 << 20


def test_forked_child_that_crashes_has_a_box(native: Native) -> None:
    """The crash handler creates it."""
    done = shell(native, "(kill -SEGV $BASHPID); echo $?")
    assert done.stdout == "139\n"
    job = load_job(native.run)
    assert len(job.processes) == len(names(native)) == 2
    (crashed,) = [p for p in job.processes if p.status_kind == "signaled"]
    assert (crashed.signal, crashed.snapshot.state, crashed.reported_by) == (11, "CRASHED", "handler")
    assert crashed.snapshot.argv[0] == "bash" and crashed.snapshot.crash is not None
    assert "OTHER_THREADS" in crashed.snapshot.crash.steps_done and crashed.snapshot.start_ticks > 0


def test_program_that_a_recorded_process_executes_has_a_box(native: Native) -> None:
    """Otherwise there is no record of how the process ended."""
    done = native.child("os.execv('/bin/true', ['true'])")
    assert done.status == 0
    assert [(box.pid, box.argv[-1], box.state) for box in done.boxes][1:] == [(done.pid, "true", "EXITING")]


UNSEEN = "ctypes.CDLL(None).syscall({'x86_64': 62}.get(os.uname().machine, 129), os.getpid(), 9)"  # SYS_kill


@pytest.mark.parametrize("end", ["os.execv('/bin/true', ['true'])", "os._exit(0)", UNSEEN])
def test_forked_child_that_records_nothing_leaves_no_box(native: Native, end: str) -> None:
    """Nor does one that inherits its parent's tables in memory."""
    done = native.child(f"""
t.testing_hold(1, 0, U64(100), 0)
for i in range(5):
    if os.fork() == 0:
        {end}
    os.wait()
""")
    assert done.status == 0, done.stderr
    assert [box.pid for box in done.boxes] == [done.pid]


@pytest.mark.parametrize(("tables", "most"), [(False, 200), (True, 8)])
def test_forked_children_that_kill_themselves_leave_few_boxes(native: Native, tables: bool, most: int) -> None:
    """Each notes its line, in a small file; a program that forks hundreds of them leaves 200, with its tables 8."""
    forks = """
import os
for i in range(250):
    if os.fork() == 0:
        os.kill(os.getpid(), 9)
    os.wait()
"""
    native.run.parent.mkdir(parents=True, exist_ok=True)
    command = native.command(forks) if tables else [sys.executable, "-S", "-c", forks]
    done = ended(command, native.env(), native.run)
    assert done.status == 0, done.stderr
    killed = [box for box in done.boxes if box.sends]
    assert most - 2 <= len(killed) < most
    assert {(box.sends[0].signal, box.sends[0].target == box.pid) for box in killed} == {(9, True)}
    assert sum(path.stat().st_blocks * 512 for path in native.run.rglob("*.blackbox")) < 64 << 20


@pytest.mark.parametrize("limit,mib", [(1_300_000, 700), (400_000, 200)])
def test_limit_on_address_space_is_left_to_the_program(native: Native, limit: int, mib: int) -> None:
    """No address space is reserved: what fits untraced fits traced."""
    script = f"ulimit -v {limit}; {sys.executable} -S -c 'print(len(bytearray({mib} << 20)))'"
    assert shell(native, script).stdout == f"{mib << 20}\n"


def test_commands_below_a_lowered_limit_run(native: Native) -> None:
    """The shell starts before the limit is set; `ls` starts under it."""
    done = shell(native, "ulimit -v 20000; ls -d /")
    assert (done.returncode, done.stdout, done.stderr) == (0, "/\n", "")


def test_forked_child_without_memory_goes_on_unrecorded(native: Native) -> None:
    """The parent's tables cannot be copied: it continues, is counted, and writes nothing to the parent's recording."""
    done = native.child("""
import resource
t.testing_hold(1, 0, U64(100), 0)
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize:")) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), -1))
pid = os.fork()
if pid == 0:
    t.testing_hold(1, 1, U64(1000), 0)
    t.testing_marks(1, U64(3))
    pid = os.fork()
    if pid == 0:
        os._exit(6)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
    assert (done.status, done.stdout) == (0, "6\n")
    (box,) = done.boxes
    assert len(box.storages) == 100 and not box.events and box.damage == ()
    assert list(missed(native.run).values()) == [1]


@pytest.mark.parametrize("nbytes", [0, 4096, 9000])
@pytest.mark.parametrize("end,status", [("os._exit(3)", 3), ("t.testing_null()", -11)])
def test_truncated_box_does_not_change_how_the_program_ends(native: Native, nbytes: int, end: str, status: int) -> None:
    """Mapped files are truncated: private memory replaces the lost pages, and the program gets no SIGBUS."""
    done = native.child(f"""{TYPES}{BOX}
t.testing_hold(1, 0, U64(100), 0)
os.truncate(path, {nbytes})
counters, = [name for name in os.listdir(os.environ["PYTRACER_DIR"]) if name.startswith("counters.")]
os.truncate(os.path.join(os.environ["PYTRACER_DIR"], counters), 0)
t.testing_hold(1, 1, U64(1000), 0)
t.testing_marks(2, U64(300))
if os.fork() == 0:
    os._exit(0)
os.wait()
{end}
""")
    assert done.status == status, done.stderr


def test_box_under_another_name_is_left_alone(native: Native) -> None:
    """The file that now has its name is not the mapped one: it is neither grown nor truncated."""
    done = native.child(f"""{TYPES}{BOX}
os.rename(path, path + b".kept")
os.symlink("/etc/hostname", path)
for thread in range(20):
    t.testing_hold(1, thread, U64(10), 0)
os.unlink(path)
open(path, "w").close()
t.testing_hold(40, 20, U64(10), 0)
core.pytracer_trim_at_exit()
""")
    assert done.status == 0, done.stderr
    (impostor,) = (native.run / "boxes").glob("*.blackbox")
    assert impostor.stat().st_size == 0


@pytest.fixture
def refused(native: Native, request: pytest.FixtureRequest) -> Native:
    """A run directory that others control: a link, or writable for others."""
    native.run.mkdir(parents=True, mode=0o700)
    if request.param == "link":
        elsewhere = native.run.parent / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        (native.run / "boxes").symlink_to(elsewhere)
    else:
        (native.run / "boxes").mkdir()
        (native.run / ("boxes" if request.param == "boxes" else "")).chmod(0o777)
    return native


@pytest.mark.parametrize("refused", ["link", "boxes", "run"], indirect=True)
def test_directory_that_others_may_write_is_refused_with_one_line(refused: Native) -> None:
    """Once, however many commands a shell runs; not at all where a launcher reports it."""
    script = "kill -l > /dev/null; /bin/true; sh -c '/bin/true; kill -9 $$'; echo done"
    told = shell(refused, script, PYTRACER_LAUNCHER="")
    silent = shell(refused, script)
    assert told.stdout == silent.stdout == "done\n"
    lines = [line for line in told.stderr.splitlines() if line.startswith("pytracer:")]
    assert len(lines) == 1 and "is not recorded" in lines[0] and str(refused.run) in lines[0]
    assert "pytracer" not in silent.stderr
    assert not list(refused.run.parent.rglob("*.blackbox"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_process_of_another_user_goes_unrecorded_in_silence(native: Native) -> None:
    """As do the children of a daemon that drops its privileges."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    done = shell(
        native,
        "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'id -u; kill -9 $$'; true",
        PYTRACER_LAUNCHER="",
    )
    assert (done.returncode, done.stdout) == (0, "65534\n")
    assert "pytracer" not in done.stderr


def test_budget_of_boxes_is_kept_and_told(tmp_path: Path) -> None:
    """Beyond it no process records, and the launcher reports it in a line; processes with torch always record."""
    script = "for i in 1 2 3 4 5; do (kill -SEGV $BASHPID); done 2> /dev/null; exit 0"
    done: Ended = traced_run("bash", "-c", script, run=tmp_path / "run", PYTRACER_MOST_BOXES="3")
    assert done.status == 0
    assert len(done.boxes) == 3
    assert "3 processes were not recorded (the budget of black boxes was used up (PYTRACER_MOST_BOXES))" in done.stderr
    assert any("not recorded" in item.what for item in done.job.damage)


def test_program_can_lock_its_memory_below_a_limit(native: Native, tmp_path: Path) -> None:
    """mlockall() under the usual limit of 8 MiB: tables that do not exist yet are not locked."""
    if shutil.which("cc") is None or shutil.which("setpriv") is None:
        pytest.skip(needs_compiler.kwargs["reason"])
    source = tmp_path / "lock.c"
    source.write_text("#include <sys/mman.h>\nint main(void) { return mlockall(MCL_CURRENT | MCL_FUTURE) != 0; }\n")
    subprocess.run(["cc", "-o", str(tmp_path / "lock"), str(source)], check=True)
    words = "setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock" if os.geteuid() == 0 else "env"
    assert shell(native, f"ulimit -l 8192; {words} {tmp_path}/lock").returncode == 0
