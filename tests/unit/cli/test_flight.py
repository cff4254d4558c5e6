"""`dump --flight-recorder` and `inspect --flight-recorder` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import only_line, pytracer
from tests.support.synth import Box, write_run


def ranks(directory: Path) -> Path:
    boxes = []
    for number in range(2):
        box = Box(pid=101 + number, ppid=1, rank=number).rank(number, 3).group("0", [0, 1, 2])
        group = box.group_seen(rank=number, size=3)
        boxes.append(box.at(10).collective("allreduce_", sequence_nr=1, sizes=(4,), group=group, reduce_op=0).exit(0))
    return write_run(directory, *boxes)


def test_dumps_are_written_and_told(tmp_path: Path) -> None:
    """Two files per rank; the next step, and the missing ranks."""
    done = pytracer("dump", ranks(tmp_path / "run"), "--flight-recorder", "out/dumps", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("out/dumps: 2 ranks; `python -m torch.distributed.flight_recorder.fr_trace ")
    assert second == "no black box of ranks 2: torch's analyzer wants --allow-incomplete-ranks"
    entry = json.loads((tmp_path / "out" / "dumps" / "rank1.json").read_text(encoding="utf-8"))["entries"][0]
    assert (entry["profiling_name"], entry["state"], entry["collective_seq_id"]) == ("gloo:all_reduce", "started", 1)
    again = pytracer("dump", tmp_path / "run", "--flight-recorder", "out/dumps", cwd=tmp_path)
    assert (again.returncode, only_line(again)) == (
        2, "pytracer: out/dumps holds dumps; overwrite them with --force, or choose another directory",
    )  # fmt: skip


def test_wrong_uses_are_one_line(tmp_path: Path) -> None:
    """A missing dump, a run without ranks, options of the printed dump."""
    run = ranks(tmp_path / "run")
    alone = write_run(tmp_path / "alone", Box())
    for words, says in (
        (("inspect", run, "--flight-recorder", "none"), "there is no none"),
        (("dump", alone, "--flight-recorder", "out"), "has no ranks"),
        (("dump", run, "--flight-recorder", "out", "--json"), "prints nothing"),
    ):
        done = pytracer(*words, cwd=tmp_path)
        assert done.returncode in (1, 2)
        assert says in only_line(done)


def test_inspect_says_what_became_of_dumps(tmp_path: Path) -> None:
    """Our own dumps are not additional evidence."""
    run = ranks(tmp_path / "run")
    assert pytracer("dump", run, "--flight-recorder", "out", cwd=tmp_path).returncode == 0
    done = pytracer("inspect", run, "--flight-recorder", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    dumps = json.loads(done.stdout)["flight_recorder"]
    assert [(item["rank"], item["pid"]) for item in dumps] == [(0, None), (1, None), (0, None), (1, None)]
    assert all("written by pytracer" in item["notes"][0] for item in dumps)
