"""The settings of guard mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer import _paths as paths
from pytracer._errors import UsageError
from pytracer.launcher import run_directory
from pytracer.record.guard_mode import Guard, map_count, memory_bytes, parse_guard


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", Guard("all")),
        ("sample:1000", Guard("sample:1000", every=1000)),
        ("min-bytes:64K", Guard("min-bytes:64K", min_bytes=65536)),
        ("all,min-bytes:1MiB", Guard("all,min-bytes:1MiB", min_bytes=1 << 20)),
        (" all , align:4 ", Guard("all,align:4", alignment=4)),
        ("all,side:underrun", Guard("all,side:underrun", underrun=True)),
        ("all,side:overrun", Guard("all,side:overrun")),
        ("all,bytes:2g,mappings:10", Guard("all,bytes:2g,mappings:10", budget_bytes=2 << 30, budget_mappings=10)),
        ("sample:5,mprotect", Guard("sample:5,mprotect", every=5, protection_only=True)),
    ],
)
def test_words_become_settings(text: str, expected: Guard) -> None:
    """Sizes may be written with K, M, G and T; side:overrun is the default."""
    assert parse_guard(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ",", "everything", "sample", "sample:0", "sample:-1", "sample:1.5", "all:1", "align:8", "align:", "side:left",
     "bytes:many", "bytes:1X", "min-bytes:", "all,sample:3", "all,all", "mprotect:1", "mappings:-2"],
)  # fmt: skip
def test_other_words_are_refused_with_an_example(text: str) -> None:
    """One line, and what to write instead."""
    with pytest.raises(UsageError, match="write for example all, sample:1000"):
        parse_guard(text)


def test_only_smaller_alignments_are_warned_of() -> None:
    """torch's own alignment is 64: results do not change by it."""
    assert parse_guard("all").warning is None
    assert "results may differ" in (parse_guard("align:16").warning or "")
    assert "4 bytes instead of 64" in (parse_guard("align:4").warning or "")


def test_job_gets_the_words_in_its_environment(tmp_path: Path) -> None:
    """Without the option the variable stays as it is."""
    run = run_directory.Run(tmp_path, tmp_path)
    if not paths.built_core().exists():
        pytest.skip("the core is not built")
    assert run_directory.environment(run, "default", {}, guard="sample:9")["PYTRACER_GUARD"] == "sample:9"
    assert "PYTRACER_GUARD" not in run_directory.environment(run, "default", {})
    assert run_directory.environment(run, "default", {"PYTRACER_GUARD": "all"})["PYTRACER_GUARD"] == "all"


def test_limits_of_the_machine_are_read(tmp_path: Path) -> None:
    """A cgroup's limit counts when it is a number; vm.max_map_count has a default."""
    limit = tmp_path / "memory.max"
    limit.write_text("1048576\n")
    assert memory_bytes(limit) == 1 << 20
    limit.write_text("max\n")
    assert memory_bytes(limit) > 1 << 20
    assert map_count(tmp_path / "missing") == 65530
