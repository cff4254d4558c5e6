"""`pytracer run`: the job's own status and streams, signals, and the launcher's own output."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytracer.launcher.supervise import Ending
from tests.conditions import needs_core
from tests.support.cli import call, clean_environment, only_line, pytracer

pytestmark = needs_core

# Answers "ready", then one line per signal; SIGTERM ends it with 5.
LISTENER = """
import signal, sys
def heard(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        sys.exit(5)
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), heard)
print("ready", flush=True)
while True:
    signal.pause()
"""


def start(*command: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """`pytracer run --no-report -- COMMAND`, still running."""
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-m", "pytracer", "run", "--no-report", "--quiet", "--", *command],
        env=clean_environment(), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip
    return process


def signals_in(status: str) -> dict[str, int]:
    """Lines of /proc/PID/status as masks."""
    return {line.split(":")[0]: int(line.split()[1], 16) for line in status.splitlines()}


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_status_is_the_jobs_own(script: str, status: int, tmp_path: Path) -> None:
    """A normal end keeps its code; signal n becomes 128+n."""
    done = pytracer("run", "--no-report", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == status
    record = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text(encoding="utf-8"))
    assert record["exit_code"] == (status if status < 128 else None)
    assert record["signal"] == (status - 128 if status > 128 else None)
    assert record["command"] == ["sh", "-c", script]
    assert record["ended_mono_ns"] >= record["started_mono_ns"]
    assert record["child_pid"] != record["pid"]


def test_success_leaves_stdout_alone_and_says_where_the_run_lies(tmp_path: Path) -> None:
    """stdout is byte-identical; stderr has one more line at its end."""
    script = 'printf "\\\\000binary\\\\377\\\\n"; echo noise >&2; cat'
    plain = subprocess.run(["sh", "-c", script], input=b"in\0put", capture_output=True, check=True)
    traced = subprocess.run(
        [sys.executable, "-m", "pytracer", "run", "--", "sh", "-c", script],
        input=b"in\0put", capture_output=True, check=True, env=clean_environment(), cwd=tmp_path,
    )  # fmt: skip
    assert traced.stdout == plain.stdout
    assert traced.stderr.startswith(plain.stderr)
    last = traced.stderr[len(plain.stderr) :].decode().splitlines()
    assert len(last) == 1
    assert last[0].startswith("pytracer: recorded in runs/")
    directory = tmp_path / last[0].removeprefix("pytracer: recorded in ")
    assert list((directory / "boxes").glob("*.blackbox"))


def test_quiet_success_says_nothing(tmp_path: Path) -> None:
    """--quiet: a job that succeeds has no additional output."""
    done = pytracer("run", "--quiet", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("word", "status", "words"),
    [
        ("no-such-command", 127, "there is no command 'no-such-command'"),
        ("./no-such-file", 127, "check the path"),
        ("./data", 126, "permission denied"),
        ("./folder", 126, "it is a directory"),
        ("./headless", 126, "no interpreter line"),
        ("./orphan", 127, "its interpreter does not exist"),
    ],
)
def test_command_that_cannot_start_is_one_line(word: str, status: int, words: str, tmp_path: Path) -> None:
    """The shell's statuses 126 and 127, one clear line with the next step, no traceback."""
    (tmp_path / "data").write_text("data", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    for name, text in (("headless", "true\n"), ("orphan", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    done = pytracer("run", "--", word, cwd=tmp_path)
    assert done.returncode == status
    assert words in only_line(done)


def test_unknown_command_makes_no_run_directory(tmp_path: Path) -> None:
    """A typing error leaves nothing behind."""
    pytracer("run", "--", "no-such-command", cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_job_gets_arguments_environment_and_directory_as_given(tmp_path: Path) -> None:
    """Only LD_PRELOAD and PYTRACER_* are added; arguments are passed on, options of the job included."""
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))"
    command = [sys.executable, "-c", code, "--level", "ops", "--", "a b", ""]
    base = clean_environment(LC_ALL="C")
    plain = json.loads(call(*command, cwd=tmp_path, env=base).stdout)
    traced = json.loads(pytracer("run", "--", *command, cwd=tmp_path, env=base).stdout)
    assert traced[:2] == plain[:2]
    added = {name: value for name, value in traced[2].items() if plain[2].get(name) != value}
    # The number of seccomp filters is known since Linux 5.9.
    assert set(added) - {"PYTRACER_SECCOMP_FILTERS"} == {
        "LD_PRELOAD",
        "PYTRACER_DIR",
        "PYTRACER_LEVEL",
        "PYTRACER_LAUNCHER",
    }
    assert added["PYTRACER_LEVEL"] == "default"
    assert not set(plain[2]) - set(traced[2])


@pytest.mark.parametrize("prelude", ["", "trap '' HUP INT; ", "trap '' PIPE; ", "trap '' TERM; ", "trap '' CHLD; "])
def test_job_gets_the_signal_state_that_the_launcher_got(prelude: str, tmp_path: Path) -> None:
    """Mask and ignored signals are those of the shell, although Python ignores SIGPIPE for itself."""
    launcher = f"{sys.executable} -m pytracer run --quiet -- grep -E '^Sig(Blk|Ign)' /proc/self/status"
    plain = call("sh", "-c", f"{prelude}{launcher.partition('-- ')[2]}; :", cwd=tmp_path).stdout
    traced = call("sh", "-c", f"{prelude}{launcher}; :", cwd=tmp_path).stdout
    assert signals_in(traced) == signals_in(plain)


@pytest.mark.parametrize("ignored", [(), ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM")], ids=["default", "ignored"])
def test_forwarded_signals_reach_the_job(ignored: tuple[str, ...], tmp_path: Path) -> None:
    """A signal to the launcher alone is passed to the job, which handles it as it chooses.

    Under nohup, in the background of a script and in some CI systems, these signals are ignored from the start; a job
    that handles them nevertheless, as torchrun does, gets them without the launcher and so must with it.
    """

    def ignore() -> None:
        for name in ignored:
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    process = start(sys.executable, "-c", LISTENER, cwd=tmp_path, preexec_fn=ignore)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGINT"):
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate()
    assert rest == "SIGTERM\n"
    assert process.returncode == 5, errors


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGALRM, signal.SIGXCPU, signal.SIGRTMIN + 3])
def test_any_signal_to_the_launcher_ends_the_job(number: int, tmp_path: Path) -> None:
    """A scheduler or watchdog that signals the process it started means the job, whichever signal it chose."""
    process = start(sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number


def test_alarm_that_was_set_before_the_launcher_reaches_the_job(tmp_path: Path) -> None:
    """alarm(2) persists over exec, and `perl -e 'alarm 60; exec @ARGV'` is a common way to set a time limit."""

    def set_alarm() -> None:
        signal.setitimer(signal.ITIMER_REAL, 4.0)

    process = start("sleep", "60", cwd=tmp_path, preexec_fn=set_alarm)
    process.communicate()
    assert process.returncode == 128 + signal.SIGALRM


def test_script_that_signals_its_process_group_hears_it_once(tmp_path: Path) -> None:
    """`kill 0` in a script reaches the launcher as well, which must not send it back."""
    script = "trap 'echo heard' TERM; kill 0; sleep 0.5; exit 3"
    process = start("sh", "-c", script, cwd=tmp_path, start_new_session=True)
    out, _ = process.communicate()
    assert (out, process.returncode) == ("heard\n", 3)


def test_signal_to_the_process_group_reaches_the_job_once(tmp_path: Path) -> None:
    """`kill %1` of a shell signals all of the group; the same signal to the launcher alone still reaches the job."""
    process = start(sys.executable, "-c", LISTENER, cwd=tmp_path, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for name in ("SIGUSR1", "SIGHUP", "SIGUSR1", "SIGINT"):
        os.killpg(process.pid, getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
        # Its number is higher, so it is delivered last: the launcher has handled the others when the job gets it.
        process.send_signal(signal.SIGUSR2)
        assert process.stdout.readline() == "SIGUSR2\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "SIGTERM\n"
    assert process.returncode == 5


def test_interrupt_of_the_terminal_arrives_once(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole process group; the launcher waits and sends no second one."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [sys.executable, "-m", "pytracer", "run", "--quiet", "--", sys.executable, "-c", LISTENER]
        os.execve(sys.executable, command, clean_environment())
    with os.fdopen(terminal, "rb+", buffering=0) as screen:
        seen = b""
        while b"ready" not in seen:
            seen += screen.read(1)
        screen.write(b"\x03")
        while b"SIGINT" not in seen:
            seen += screen.read(1)
        os.kill(pid, signal.SIGTERM)
        try:
            while data := screen.read(1024):
                seen += data
        except OSError:  # EIO: no process has the terminal open
            pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert seen.count(b"SIGINT") == 1, seen


def test_launcher_is_not_preloaded(tmp_path: Path) -> None:
    """Only the job's processes have recordings."""
    done = pytracer("run", "--quiet", "--", "true", cwd=tmp_path)
    assert done.returncode == 0
    record = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text(encoding="utf-8"))
    (box,) = (tmp_path / "runs" / "latest" / "boxes").iterdir()
    assert f".{record['child_pid']}." in box.name


def test_job_without_boxes_is_explained(tmp_path: Path) -> None:
    """A job that drops the preload is reported as unrecorded; its status is unchanged."""
    done = pytracer("run", "--", "env", "-i", "sh", "-c", "exit 3", cwd=tmp_path)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", ["rm -rf runs", "rm -rf runs/*/boxes", "rm -f runs/*/run.json; exit 4"])
def test_failing_report_never_changes_the_status(damage: str, tmp_path: Path) -> None:
    """Whatever happens to the run directory, the status is the job's and there is no traceback."""
    plain = subprocess.run(["sh", "-c", damage], cwd=tmp_path, check=False).returncode
    done = pytracer("run", "--", "sh", "-c", damage, cwd=tmp_path)
    assert done.returncode == plain
    assert "Traceback" not in done.stderr


def test_output_directory_is_used_and_guarded(tmp_path: Path) -> None:
    """-o DIR records there; a second time needs --force; latest is not touched elsewhere."""
    assert pytracer("run", "-o", "deep/out", "--quiet", "--", "true", cwd=tmp_path).returncode == 0
    names = sorted(path.name for path in (tmp_path / "deep" / "out").iterdir())
    assert [name.partition(".")[0] for name in names] == ["boxes", "counters", "run"]
    assert not (tmp_path / "runs").exists()
    again = pytracer("run", "-o", "deep/out", "--quiet", "--", "true", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in only_line(again)
    assert pytracer("run", "-o", "deep/out", "--force", "--quiet", "--", "true", cwd=tmp_path).returncode == 0


NULL_READ = "import ctypes\ndef read():\n    ctypes.string_at(0)\nprint('before', flush=True)\nread()"


def test_crash_is_explained_after_the_jobs_own_output(tmp_path: Path) -> None:
    """The report is on stderr, with the crashing line; the status is the signal's; a copy is in the run directory."""
    done = pytracer("run", "--", sys.executable, "-c", NULL_READ, cwd=tmp_path)
    assert done.returncode == 139
    assert done.stdout == "before\n"
    assert "null-dereference" in done.stderr
    assert "<string>:3" in done.stderr
    report = json.loads((tmp_path / "runs" / "latest" / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"]["class"] == "null-dereference"
    assert report["processes"][0]["status"]["signal"] == 11
    names = json.loads((tmp_path / "runs" / "latest" / "symbols.json").read_text(encoding="utf-8"))
    assert names


def test_report_can_be_left_for_later(tmp_path: Path) -> None:
    """--no-report: one line that names the command to explain it."""
    done = pytracer("run", "--no-report", "--", sys.executable, "-c", NULL_READ, cwd=tmp_path)
    assert done.returncode == 139
    words = only_line(done)
    assert "was ended by SIGSEGV" in words
    assert "pytracer inspect runs/" in words


def test_death_inside_a_job_that_succeeds_is_explained(tmp_path: Path) -> None:
    """A crashed child is reported, even if its parent continues and exits normally."""
    script = f"{sys.executable} -c 'import ctypes; ctypes.string_at(0)'; exit 0"
    done = pytracer("run", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert "null-dereference" in done.stderr


def test_plain_failure_is_one_line(tmp_path: Path) -> None:
    """A program that exits with a status and no crash has reported its own error."""
    done = pytracer("run", "--", "grep", "-q", "x", os.devnull, cwd=tmp_path)
    assert done.returncode == 1
    assert "exited with status 1, and nothing crashed" in only_line(done)


def test_ending_speaks_like_a_shell() -> None:
    """Status and description of an exit."""
    assert Ending(1, 3, None, False).status == 3
    assert Ending(1, None, 11, False).status == 139
    assert Ending(1, None, 11, False).words == "was ended by SIGSEGV"
    assert Ending(1, None, 64, False).words == "was ended by SIGRTMAX"


def test_signals_that_come_after_the_jobs_end_do_not_end_the_launcher(tmp_path: Path) -> None:
    """slurmstepd signals one process of a task after the other: the job may have ended by then."""
    sender = "(for i in $(seq 100); do kill -TERM $PPID; sleep 0.01; done) 2>/dev/null >/dev/null </dev/null &"
    done = pytracer("run", "--no-report", "--quiet", "--", "sh", "-c", f"trap '' TERM; {sender} exit 7", cwd=tmp_path)
    assert done.returncode == 7
