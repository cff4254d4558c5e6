"""Findings that accompany a verdict: they are reported, and never become it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytracer.render.text import render_text
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, died, finding, image, summary, verdict
from tests.support.synth import Box

GOMP = f"{s.TORCH}/lib/libgomp-a34b3233.so.1"
OTHER_GOMP = "/venv/lib/python3.11/site-packages/scikit_learn.libs/libgomp-52f2fd74.so.1"
IOMP = "/venv/lib/libiomp5.so"
LIB = f"{s.TORCH}/lib"
WILD = 0x6_0000_0008


def crashed(run: Path, *paths: str, **how: Any) -> Any:
    return died(run, addr=WILD, images=tuple(image(path, number) for number, path in enumerate(paths)), **how)


# two-openmp-runtimes


def test_two_openmp_runtimes_accompany_the_verdict(run: Path) -> None:
    """The crashed thread is in neither: possible, and the verdict stays what it is."""
    report = crashed(run, GOMP, OTHER_GOMP)
    found = finding(report, "two-openmp-runtimes")
    assert found is not None and found.confidence == "possible"
    assert [item.id for item in report.findings or []] == ["wild-pointer", "two-openmp-runtimes"]
    assert verdict(report)[0] == "wild-pointer"
    assert found.summary == "Process 101 (train.py) had 2 OpenMP runtimes loaded."
    assert "also     Process 101 (train.py) had 2 OpenMP runtimes loaded." in render_text(report)


def test_two_openmp_runtimes_are_likely_when_the_crash_is_in_one(run: Path) -> None:
    """A worker of one of them; still not the verdict."""
    report = crashed(run, GOMP, IOMP, stack_of=[(s.VICTIM, "f"), (IOMP, "__kmp_invoke_microtask")])
    found = finding(report, "two-openmp-runtimes")
    assert found is not None and found.confidence == "likely"
    assert "(__kmp_invoke_microtask)" in (found.summary or "")
    assert verdict(report)[0] == "wild-pointer"


def test_one_openmp_runtime_is_no_finding(run: Path) -> None:
    """Listed twice is still one file; libgomp-plugin is another library."""
    report = crashed(run, GOMP, GOMP, "/usr/lib/libgomp-plugin-nvptx.so.1")
    assert finding(report, "two-openmp-runtimes") is None


def test_circumstance_does_not_explain_an_unknown_death(run: Path) -> None:
    """The last rule still fires, and is the verdict."""
    mapping = (WILD & ~4095, (WILD & ~4095) + 4096, "---p", 0, "")
    report = crashed(run, GOMP, IOMP, code=2, mappings=[PROGRAM, mapping])
    assert verdict(report) == ("unknown", "unknown")
    assert [item.id for item in report.findings or []] == ["other-death", "two-openmp-runtimes"]


def test_circumstances_are_not_told_of_processes_that_ended_otherwise(run: Path) -> None:
    """An exception, and a signal while shutting down."""
    box = Box(pid=101, ppid=99).exception("ValueError", "bad", [("main", s.SCRIPT, 3)])
    assert finding(crashed(run, GOMP, IOMP, box=box), "two-openmp-runtimes") is None


# wrong-library-loaded


def test_torch_library_from_elsewhere_is_likely_wrong(run: Path) -> None:
    """LD_LIBRARY_PATH leads to another torch, and is named."""
    box = Box(pid=101, ppid=99, environment={"LD_LIBRARY_PATH": "/opt/other/lib:/usr/lib"})
    report = crashed(run, f"{LIB}/libtorch_python.so", f"{LIB}/libc10.so", "/opt/other/lib/libtorch_cpu.so", box=box)
    found = finding(report, "wrong-library-loaded")
    assert found is not None and found.confidence == "likely"
    assert found.summary == (
        "Process 101 (train.py) had libtorch_cpu loaded from /opt/other/lib, not from the torch that was imported."
    )
    assert "LD_LIBRARY_PATH leads there: /opt/other/lib:/usr/lib" in (found.evidence or [])
    assert verdict(report)[0] == "wild-pointer"


def test_library_twice_is_possibly_wrong(run: Path) -> None:
    """Two copies of the C++ runtime."""
    report = crashed(run, "/usr/lib/libstdc++.so.6", "/opt/conda/lib/libstdc++.so.6.0.33")
    found = finding(report, "wrong-library-loaded")
    assert found is not None and found.confidence == "possible"
    assert "libstdc++ loaded from two different files" in (found.summary or "")


def test_ordinary_set_of_libraries_is_not_wrong(run: Path) -> None:
    """A wheel: torch's own folder, and NVIDIA's libraries from their packages."""
    nvidia = "/venv/lib/python3.11/site-packages/nvidia"
    report = crashed(
        run,
        *(f"{LIB}/{name}.so" for name in ("libtorch_python", "libtorch_cpu", "libtorch", "libc10")),
        f"{nvidia}/nccl/lib/libnccl.so.2",
        f"{nvidia}/cudnn/lib/libcudnn.so.9",
        f"{nvidia}/cudnn/lib/libcudnn_ops.so.9",
        "/usr/lib/libstdc++.so.6",
    )
    assert finding(report, "wrong-library-loaded") is None


# flipped-bit

MAPPING = (0x7F50_0000_0000, 0x7F50_0010_0000, "rw-p", 0, "")


def test_one_bit_away_from_own_memory_is_possible(run: Path) -> None:
    """Bit 52 of an address in a writable mapping."""
    report = died(run, addr=0x7F50_0000_1000 | 1 << 52, code=1, mappings=[PROGRAM, MAPPING])
    found = finding(report, "flipped-bit")
    assert found is not None and found.confidence == "possible"
    assert "but for bit 52 is 0x7f5000001000, in anonymous memory" in (found.summary or "")
    assert verdict(report) == ("wild-pointer", "likely")
    assert "flipped" not in summary(report)


def test_two_bits_or_foreign_memory_are_no_flipped_bit(run: Path) -> None:
    """Garbage."""
    two = died(run, addr=0x7F50_0000_1000 | 3 << 52, code=1, mappings=[PROGRAM, MAPPING])
    assert finding(two, "flipped-bit") is None
    foreign = died(run, addr=0x7A50_0000_1000 | 1 << 52, code=1, mappings=[PROGRAM, MAPPING])
    assert finding(foreign, "flipped-bit") is None
