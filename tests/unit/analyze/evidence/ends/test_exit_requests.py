"""Options that no line of the program knows."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.exit_requests import unknown_option
from pytracer.report.job import PythonFrame

PARSER = 'p = ArgumentParser()\np.add_argument("-c", "--config")\np.add_argument("--local_rank")\np.parse_args()\n'
MADE = (
    'p = ArgumentParser()\nfor name in NAMES:\n    p.add_argument(name)\np.add_argument("--config")\np.parse_args()\n'
)


@pytest.mark.parametrize(
    ("source", "argv", "says"),
    [
        (PARSER, ("a.py", "--local-rank=0"), " (no add_argument() of a.py has --local-rank, but one has --local_rank)"),
        (PARSER, ("a.py", "--frozen"), " (no add_argument() of a.py has --frozen)"),
        (PARSER, ("a.py", "--conf", "x", "--local_rank=1"), None),  # argparse takes a beginning of a name
        (PARSER, ("a.py", "--a1", "--b2"), None),
        (MADE, ("a.py", "--local-rank=0"), None),  # others are made of variables
        ("p.parse_args()\n", ("a.py", "--local-rank=0"), None),
    ],
)
def test_option_is_named_where_only_one_is_unknown(
    source: str, argv: tuple[str, ...], says: str | None, tmp_path: Path
) -> None:
    """Others may have been made in a way that the source does not show."""
    file = tmp_path / "a.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=argv)
    assert unknown_option(snapshot, PythonFrame(function="<module>", file=str(file), line=1)) == says
