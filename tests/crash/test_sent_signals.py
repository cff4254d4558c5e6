"""Signals that ask a process to end: the sender is in the recording, and the program is not affected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.decode.types.journal import SeenSignal, select
from pytracer.decode.types.snapshot import Crash
from tests.conditions import needs_core, needs_native
from tests.support.crash import Ended, ended, environment, preloaded

pytestmark = needs_core
NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGXCPU")

# Each prints what it observes; traced, output and exit status must be the same.
PROGRAMS = {
    "default": "signal.signal(N, signal.SIG_DFL); os.kill(os.getpid(), N); time.sleep(5)",
    "ignored": "signal.signal(N, signal.SIG_IGN); os.kill(os.getpid(), N); print('goes on')",
    "python handler": "signal.signal(N, lambda *a: print('handled', a[0] == N)); os.kill(os.getpid(), N); print('on')",
    "handler that raises": """
def stop(number, frame):
    raise SystemExit(3)
signal.signal(N, stop)
os.kill(os.getpid(), N)
time.sleep(5)
""".strip(),
    "restored": "signal.signal(N, print); print(signal.signal(N, signal.SIG_DFL) is print); os.kill(os.getpid(), N)",
    "interrupted read": """
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(N, lambda *a: None)
read_end, write_end = os.pipe()
def send():
    time.sleep(0.3)
    os.kill(os.getpid(), N)
threading.Thread(target=send).start()
buffer = ctypes.create_string_buffer(1)
print(libc.read(read_end, buffer, 1), ctypes.get_errno())
""".strip(),
    "restarted read": """
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(N, lambda *a: None)
signal.siginterrupt(N, False)
read_end, write_end = os.pipe()
def send():
    time.sleep(0.2)
    os.kill(os.getpid(), N)
    time.sleep(0.2)
    os.write(write_end, b"x")
threading.Thread(target=send).start()
buffer = ctypes.create_string_buffer(1)
print(libc.read(read_end, buffer, 1), buffer.raw)
""".strip(),
    "waited for": "signal.pthread_sigmask(signal.SIG_BLOCK, [N]); os.kill(os.getpid(), N); print(signal.sigwait([N]))",
    "child of a shell": "print(subprocess.run(['sh', '-c', f'kill -{int(N)} $$; sleep 5']).returncode)",
    "trap of a shell": """
script = f'trap "echo trapped" {int(N)}; kill -{int(N)} $$; echo on'
print(subprocess.run(["bash", "-c", script]).returncode)
""".strip(),
    "subprocess": """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"])
time.sleep(0.5)
child.send_signal(N)
print(child.wait())
""".strip(),
}
PROLOGUE = "import os, signal, subprocess, sys, time; N = signal.{name}\n"


def program(name: str, text: str) -> list[str | Path]:
    """The command of one program."""
    return [sys.executable, "-u", "-c", PROLOGUE.format(name=name) + text]


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_program_sees_its_signals_as_without_us(name: str, text: str, run: Path) -> None:
    """Handlers, default actions, ignored signals, interrupted and restarted calls: the same output, the same end."""
    plain = ended(program(name, text), environment(), run)
    traced = ended(program(name, text), preloaded(run), run)
    assert (traced.status, traced.stdout, traced.stderr) == (plain.status, plain.stdout, plain.stderr)


def seen(done: Ended) -> list[SeenSignal]:
    """The SIGNAL_SEEN entries of the process itself."""
    return [fact.data for fact in select(done.box.facts, SeenSignal)]


@pytest.mark.parametrize("name", NAMES)
def test_sender_of_a_deadly_signal_is_in_the_box(name: str, run: Path) -> None:
    """The sender's pid and command line; the status is the signal's, and the recording has no crash."""
    number = signal.Signals[name]
    with subprocess.Popen(
        program(name, "signal.signal(N, signal.SIG_DFL); print('ready'); time.sleep(60)"),
        env=preloaded(run), cwd=run.parent, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        killer = subprocess.Popen(["sh", "-c", f"kill -{int(number)} {child.pid}; sleep 0.2"], env=environment())
        assert child.wait(20) == -number
        killer.wait()
    done = Ended(child.pid, -number, "", "", run)
    (entry,) = seen(done)
    assert (entry.signal, entry.sender_pid, entry.handled) == (number, killer.pid, False)
    assert entry.sender_command[:2] == ("sh", "-c")
    assert done.box.crash is None


def test_handled_signal_is_noted_and_the_program_goes_on(run: Path) -> None:
    """The entry records that a handler got it."""
    done = ended(program("SIGTERM", PROGRAMS["python handler"]), preloaded(run), run)
    assert (done.status, done.stdout) == (0, "handled True\non\n")
    (entry,) = seen(done)
    assert (entry.sender_pid, entry.handled) == (done.pid, True)


def test_flood_of_signals_does_not_fill_the_box(run: Path) -> None:
    """For a program that uses one of them constantly, the number of entries is bounded."""
    text = "signal.signal(N, lambda *a: None)\nfor _ in range(1000): os.kill(os.getpid(), N)"
    done = ended(program("SIGHUP", text), preloaded(run), run)
    assert done.status == 0
    assert len(seen(done)) == 200
    assert os.path.getsize(done.box.path) < 16 << 20


SMALL = """
#include <signal.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
static volatile int heard;
static void handler(int number) { heard = number; }
int main(void) {
  unsigned long page = 4096, room = getauxval(AT_MINSIGSTKSZ) + 1024;
  char* at = mmap(0, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(at, page, PROT_NONE);
  stack_t stack = {.ss_sp = at + page, .ss_size = room};
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  if (sigaltstack(&stack, 0) != 0 || sigaction(SIGTERM, &action, 0) != 0) return 1;
  raise(SIGTERM);
  printf("heard %d\\n", heard);
  return 0;
}
"""


def test_signal_is_noted_although_the_programs_alternate_stack_is_small(run: Path, tmp_path: Path) -> None:
    """A stack of 1 KiB more than the kernel's frame is enough for the handler, also when traced."""
    run.parent.mkdir(parents=True, exist_ok=True)
    program = tmp_path / "small"
    subprocess.run(["cc", "-xc", "-", "-o", str(program)], input=SMALL, text=True, check=True)
    plain = ended([program], environment(), run)
    done = ended([program], preloaded(run), run)
    assert (done.status, done.stdout) == (plain.status, plain.stdout) == (0, "heard 15\n")
    assert [entry.kind for entry in done.box.facts if entry.kind == "SIGNAL_SEEN"] == ["SIGNAL_SEEN"]


PLAIN = """
import time
def stands():
    print("ready", flush=True)
    time.sleep(60)
stands()
"""
POOL = """
import multiprocessing, time
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    worker.start()
    time.sleep(0.5)
    worker.terminate()
    worker.join()
    print(worker.pid, flush=True)
"""
INTERRUPTED = """
import time, torch
held = torch.ones(4)
def stands():
    print("ready", flush=True)
    time.sleep(60)
def leaves():
    print("leaving", flush=True)
    time.sleep(60)
try:
    stands()
except KeyboardInterrupt:
    leaves()
"""


def functions(crash: Crash | None) -> list[str]:
    """Of the Python stack that was written."""
    return [frame.function for frame in crash.python_stack] if crash is not None else []


@needs_native
def test_python_without_torch_that_somebody_ends_leaves_its_stacks(run: Path, tmp_path: Path) -> None:
    """TensorFlow and JAX hang, too. The recording is small: only what was written takes space."""
    (tmp_path / "plain.py").write_text(PLAIN)
    command = ["sh", "-c", f"{sys.executable} plain.py & read line; kill $!; wait $!"]
    with subprocess.Popen(
        command, env=preloaded(run), cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None and shell.stdin is not None
        assert shell.stdout.readline() == "ready\n"
        shell.stdin.write("\n")
        shell.stdin.close()
        assert shell.wait(30) == 128 + signal.SIGTERM
    (box,) = [box for box in Ended(shell.pid, 0, "", "", run).boxes if "plain.py" in box.argv]
    assert "stands" in functions(box.ending)
    assert os.stat(box.path).st_blocks * 512 < 1 << 20


@needs_native
def test_worker_that_its_pool_ends_needs_no_recording(run: Path, tmp_path: Path) -> None:
    """The look-alike: every day, and by the dozen."""
    (tmp_path / "pool.py").write_text(POOL)
    done = ended([sys.executable, str(tmp_path / "pool.py")], preloaded(run), run)
    assert done.status == 0, done.stderr
    assert all(box.ending is None for box in done.boxes)


@needs_native
def test_stacks_are_of_the_first_request_when_another_one_follows(run: Path, tmp_path: Path) -> None:
    """A notebook's client interrupts the kernel, then ends it: by then it is on its way out."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, "interrupted.py"], env=preloaded(run), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "leaving\n"
        child.terminate()
        assert child.wait(30) == -signal.SIGTERM
    box = Ended(child.pid, 0, "", "", run).box
    assert box.live is not None and box.live.signal == signal.SIGINT
    assert "stands" in functions(box.live) and "leaves" not in functions(box.live)
