"""The kernel's log: records and lines as real kernels write them, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.launcher import kernel_log
from pytracer.launcher.kernel_log import WANTED, KernelLog, parse_line, parse_record

KILLED = (
    "Memory cgroup out of memory: Killed process 19663 (python3) total-vm:1147848kB, anon-rss:88668kB, "
    "file-rss:6856kB, shmem-rss:0kB, UID:0 pgtables:252kB oom_score_adj:0"
)
LIMIT = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job,"
    "task=python3,pid=19663,uid=0"
)


def test_record_of_kmsg_is_its_time_and_first_line() -> None:
    """Continuation lines carry device names."""
    record = f"3,1042,15687795113,-;{KILLED}\n SUBSYSTEM=memory\n".encode()
    assert parse_record(record) == (15687795113, KILLED)


@pytest.mark.parametrize(
    "line", [f"<3>[15687.795113] {KILLED}", f"[15687.795113] {KILLED}", f"[15687.795113][ T4711] {KILLED}"]
)
def test_line_of_syslog_is_its_time_and_text(line: str) -> None:
    """With and without the level and the caller."""
    assert parse_line(line) == (15687795113, KILLED)


def test_odd_records_have_no_time() -> None:
    """Never an error."""
    assert parse_record(b"") == (None, "")
    assert parse_record(b"no head at all") == (None, "")
    assert parse_line("no bracket") == (None, "no bracket")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (KILLED, True),
        (LIMIT, True),
        ("Out of memory: Killed process 1 (x)", True),
        ("python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", True),
        ("oom_reaper: reaped process 19663 (python3), now anon-rss:0kB", True),
        ("python[5073]: segfault at 0 ip 00007f5cb9785ad8 sp 00007fffce3ca0c8 error 4 in libc.so.6", True),
        ("traps: python[7] general protection fault ip:7f sp:7f error:0 in libtorch.so", True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.", True),
        ("EXT4-fs (vda1): mounted filesystem with ordered data mode", False),
        ("usb 1-1: new high-speed USB device", False),
        ("Code: 89 e5 48 8d 3d ea 2b 00 00 e8 ad fe", False),
    ],
)
def test_only_lines_about_deaths_are_kept(text: str, wanted: bool) -> None:
    """The rest of the log is not kept."""
    assert bool(WANTED.search(text)) is wanted


def test_log_that_does_not_exist_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in most containers, where syslog(2) is refused as well."""
    monkeypatch.setattr(kernel_log, "_syslog", lambda: "")
    log = KernelLog(str(tmp_path / "kmsg"))
    log.look()
    log.finish()
    found = log.as_dict()
    assert found["readable"] is False
    assert "ENOENT" in found["why"]


def test_without_the_file_syslog_is_asked_and_old_lines_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines from before the job are not about the job."""
    old = "<3>[1.000000] Out of memory: Killed process 1 (old)\n"
    texts = iter([old, f"{old}<3>[2.000000] {KILLED}\n<6>[3.000000] usb 1-1: new\n"])
    monkeypatch.setattr(kernel_log, "_syslog", lambda: next(texts))
    log = KernelLog(str(tmp_path / "kmsg"))
    log.finish()
    found = log.as_dict()
    assert found["readable"] is True
    assert [(item["log_us"], item["text"]) for item in found["lines"]] == [(2000000, KILLED)]


def test_flood_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines are kept, the others counted."""
    text = "".join(f"[{n}.000000] Killed process {n} (x)\n" for n in range(500))
    texts = iter(["[0.000001] start", "[0.000001] start\n" + text])
    monkeypatch.setattr(kernel_log, "_syslog", lambda: next(texts))
    log = KernelLog(str(tmp_path / "kmsg"))
    log.finish()
    found = log.as_dict()
    assert (len(found["lines"]), found["left_out"]) == (200, 300)
    assert found["lines"][-1]["text"] == "Killed process 499 (x)"
