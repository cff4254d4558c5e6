"""A file that a late rank finds, as another one has made it: it leaves before the call. Files that explain nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_left_out_calls import NO_MODEL, reported

INDEX = """class Index:
    def __init__(self, folder, rank):
        self.rank = rank
        self.cache = os.path.join(folder, {name})
    def entries(self):
        {asks}
            with open(self.cache) as f:
                return json.load(f)
        if self.rank == {maker}:
            self.scan()
        dist.all_reduce(flag)
        return self.entries()
    def scan(self):
        with open(self.cache + ".tmp", "w") as f:
            json.dump(found, f)
        {makes}
def main(rank):
    index = Index("data", rank)
    entries = index.entries()
    dist.broadcast(total, 0)
if __name__ == "__main__":
    main(int(os.environ["RANK"]))
"""
ASKS = "if os.path.exists(self.cache):"
MAKES = "os.replace(self.cache + '.tmp', self.cache)"
MINE = [("entries", 11), ("main", 19), ("<module>", 22)]
THEIRS = [("main", 20), ("<module>", 22)]


def said(
    run: Path, *, asks: str = ASKS, makes: str = MAKES, maker: int = 0, name: str = '"index.json"'
) -> tuple[str, str]:
    """Headline and advice where rank 0 is in the all_reduce of entries(), and rank 1 in the broadcast behind it."""
    source = INDEX.format(asks=asks, makes=makes, maker=maker, name=name)
    report = reported(run, source, [], ("allreduce_", MINE, [1]), ("broadcast_", THEIRS, [1]), NO_MODEL)
    return summary(report), advice(report)


@pytest.mark.parametrize("asks", [ASKS, "if Path(self.cache).is_file():", "if (found := os.path.isfile(self.cache)):"])
def test_file_that_another_rank_made_meanwhile(asks: str, run: Path) -> None:
    """By the function that returns before the call, also from within a `with`; not by a branch that both are below."""
    headline, to_do = said(run, asks=asks)
    assert "skipped the all_reduce on rank 1, which may have found what line 16 makes on rank 0" in headline
    assert "Let one rank alone look for that file and broadcast the answer" in to_do
    assert "__name__" not in headline + to_do


@pytest.mark.parametrize(
    "options",
    [
        {"makes": "os.replace(self.cache + '.tmp', self.other)"},
        {"maker": 1},
        {"name": 'f"index_{rank}.json"'},
    ],
    ids=["another file", "the other rank makes it", "each rank's own"],
)
def test_file_that_is_not_made_there_explains_nothing(options: dict[str, object], run: Path) -> None:
    """The look-alikes: the condition is still named, and what it found is not known."""
    headline, to_do = said(run, **options)  # type: ignore[arg-type]
    assert "line 6 (`" in headline
    assert "skipped the all_reduce on rank 1" in headline
    assert "may have found" not in headline + to_do


def test_branch_that_both_ranks_are_below_is_no_reason(run: Path) -> None:
    """Also where nothing else is known: rank 1 called main(), which rank 0 is in, too."""
    source = "def main():\n    dist.all_reduce(one)\n    dist.broadcast(two, 0)\nif {0}:\n    main()\n"
    for test in ('__name__ == "__main__"', "todo", "rank < size"):
        where = [("main", 2), ("<module>", 5)], [("main", 3), ("<module>", 5)]
        report = reported(
            run / test[:4],
            source.format(test),
            [],
            ("allreduce_", where[0], [1]),
            ("broadcast_", where[1], [1]),
            NO_MODEL,
        )
        assert "never called" not in advice(report)
        assert "only some ranks call" not in advice(report)
