"""`pytracer where`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.cli import only_line, pytracer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo: rank 1 reads DDP's first bucket after it was rebuilt."""
    directory = tmp_path_factory.mktemp("where") / "run"
    s.use_after_free(directory)
    return directory


def test_address_is_explained_in_words_of_the_training_program(run: Path) -> None:
    """Sentence first, then bucket, both call sites, and referrers."""
    done = pytracer("where", run, hex(s.BUCKET + 81920), cwd=run)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("rank 1, pid 102 on node0, died of SIGSEGV")
    assert lines[0].endswith("(chosen: the verdict is about it)")
    assert lines[2].startswith("0x7f3000014000 is 81920 bytes into freed storage of 4.0 MiB [0x7f3000000000,")
    text = " ".join(done.stdout.split())
    assert "(DDP bucket 0 of model (generation 0), gradient of layers.0.in_proj)" in text
    assert "alloc train.py:70 in main" in text.replace("/home/user/job/", "")
    assert "freed train.py:84 in main" in text.replace("/home/user/job/", "")
    assert "held by" in text


def test_json_is_alone_on_stdout(run: Path) -> None:
    """Several addresses, one object."""
    done = pytracer("where", run, "fault", "rip", "--json", cwd=run)
    value = json.loads(done.stdout)
    assert (value["schema"], value["version"], done.stderr) == ("pytracer-where", 1, "")
    assert [(item["asked"], item["kind"]) for item in value["addresses"]] == [
        ("fault", "freed-storage"),
        ("rip", "image"),
    ]
    assert set(value["process"]) == {"pid", "rank", "role", "host", "status", "signal", "ended", "chosen"}
    assert set(value["addresses"][0]) == {
        "asked", "addr", "kind", "says", "storage", "bucket", "fsdp", "region", "neighbors", "earlier_lives",
        "pointed_by",
    }  # fmt: skip


def test_narrow_terminals_keep_every_word(run: Path) -> None:
    """Lines are folded, not cut."""
    wide = pytracer("where", run, "fault", cwd=run).stdout
    assert max(len(line) for line in wide.splitlines()) <= 100


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["fault", "--rank", "7"], 1, "there is no rank 7 in"),
        (["rdi", "--rank", "0"], 1, "Rank 0 left no crash record"),
        (["wherever"], 2, "'wherever' is neither an address nor a register"),
        (["0x10", "--rank", "x"], 2, "pytracer where --help"),
        ([], 2, "pytracer where --help"),
    ],
)
def test_errors_are_one_line_with_the_next_step(run: Path, arguments: list[str], status: int, says: str) -> None:
    """Exit 1 for what does not exist, 2 for wrong arguments."""
    done = pytracer("where", run, *arguments, cwd=run)
    assert (done.returncode, done.stdout) == (status, "")
    assert says in only_line(done)
