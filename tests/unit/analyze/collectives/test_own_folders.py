"""A folder that each rank makes for itself, by whose files an `if` decides; and folders that the ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_left_out_calls import NO_MODEL, reported

RESUME = """import datetime, os, tempfile, uuid
def newest(place):
    names = [n for n in os.listdir(place) if n.endswith(".pt")]
    if not names:
        return None
    return os.path.join(place, max(names))
class Fitter:
    def __init__(self, net, place):
        self.net, self.place = net, place
    def save(self):
        if rank == 0:
            torch.save(self.net.state_dict(), os.path.join(self.place, "a.pt"))
        dist.barrier()
    def load(self, path):
        dist.all_reduce(flag)
    def run(self, start=None):
        {asks}
            self.load(start)
        dist.broadcast(total, 0)
def main(rank, args):
    place = {makes}
    {shares}
    Fitter(Net(), place).run()
    fitter = Fitter(Net(), place)
    fitter.run(start={start})
main(int(os.environ["RANK"]), parse())
"""
MADE = 'tempfile.mkdtemp(prefix="run_")'
MINE = [("Fitter.load", 15), ("Fitter.run", 18), ("main", 25), ("<module>", 26)]
THEIRS = [("Fitter.run", 19), ("main", 25), ("<module>", 26)]


def said(
    run: Path,
    *,
    makes: str = MADE,
    shares: str = "pass",
    start: str = "newest(place)",
    asks: str = "if start is not None:",
) -> tuple[str, str]:
    """Headline and advice where rank 0 is in the all_reduce of load(), and rank 1 in the broadcast behind it."""
    source = RESUME.format(makes=makes, shares=shares, start=start, asks=asks)
    report = reported(run, source, [], ("allreduce_", MINE, [1]), ("broadcast_", THEIRS, [1]), NO_MODEL)
    return summary(report), advice(report)


@pytest.mark.parametrize(
    ("makes", "why"),
    [
        (MADE, "of which line 21 (`tempfile.mkdtemp`) gives each process another one"),
        ('f"runs/{uuid.uuid4().hex[:8]}"', "of which line 21 (`uuid.uuid4`) gives each process another one"),
        ('os.path.join("runs", str(os.getpid()))', "of which line 21 (`os.getpid`) gives each process another one"),
        (
            'os.path.join("runs", datetime.datetime.now().strftime("%H%M%S"))',
            "which may differ: line 21 (`datetime.datetime.now`) takes the time of each process",
        ),
    ],
)
def test_folder_that_each_rank_makes_for_itself_decides(makes: str, why: str, run: Path) -> None:
    """Through the function that looks into it, and returns None where there is nothing."""
    headline, to_do = said(run, makes=makes)
    assert "line 17 (`if start is not None:`) skipped the all_reduce on rank 1" in headline
    assert f"by the files in `place`, {why}" in headline
    assert "Make `place` the same path on all ranks: make it on rank 0, and broadcast it" in to_do
    assert "line 12 writes there on rank 0 only" in to_do
    assert "all_reduce() the flag" not in to_do


def test_path_that_the_condition_asks_for_itself_is_found_too(run: Path) -> None:
    """`if os.path.exists(start):`."""
    headline, _ = said(run, start='os.path.join(place, "a.pt")', asks="if os.path.exists(start):")
    assert "by the files in `place`, of which line 21 (`tempfile.mkdtemp`)" in headline


@pytest.mark.parametrize(
    "how",
    [
        {"makes": '"runs/one"'},
        {"makes": "args.out"},
        {"makes": f"{MADE} if rank == 0 else None"},
        {"shares": "box = [place]; dist.broadcast_object_list(box); place = box[0]"},
        {"shares": "dist.broadcast_object_list([place])"},
        {"shares": 'subprocess.run(["train", place])'},
        {"start": "ask(place)"},
        {"start": "args.resume"},
        {"asks": "if start is not None or os.path.exists(args.last):"},
    ],
    ids=[
        "a constant",
        "an option",
        "of one rank",
        "broadcast",
        "sent",
        "given away",
        "unknown question",
        "no question",
        "another question",
    ],
)
def test_folder_that_the_ranks_may_share_explains_nothing(how: dict[str, str], run: Path) -> None:
    """The look-alikes: the condition is named, and no folder."""
    headline, to_do = said(run, **how)
    assert "skipped the all_reduce on rank 1" in headline
    assert "the files in" not in headline + to_do
