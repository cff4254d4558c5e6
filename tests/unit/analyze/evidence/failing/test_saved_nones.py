"""None out of a file that the program saved with None for it: by the line, the condition and the names of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

CHECKPOINT = """import os
net = nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
def save(folder, best):
    {state}
    torch.save(state, os.path.join(folder, {name}))
def resume(path):
    saved = torch.load(path)
    opt.load_state_dict(saved["opt"])
save({folder!r}, best=True)
resume(os.path.join({folder!r}, "best.pt"))
"""
JSON = """import json
def write(path, scaler=None):
    with open(path, "w") as f:
        json.dump({{"step": 3, "scale": None}}, f)
def read(path):
    with open(path) as f:
        meta = json.load(f)
    return [item * 2 for item in meta["scale"]["values"]]
write({path!r})
read({path!r})
"""


def words(folder: Path, source: str) -> tuple[str, str]:
    """The headline's clause, and the advice."""
    return (
        str(of_program(folder, source, lambda *given: explained(*given).subject)),
        str(of_program(folder, source)),
    )


def test_file_that_is_saved_without_is_named_with_the_other(tmp_path: Path) -> None:
    """The same condition chooses the value and the name, once with `not`."""
    state = 'state = {"net": net.state_dict(), "opt": None if best else opt.state_dict()}'
    source = CHECKPOINT.format(state=state, name='"last.pt" if not best else "best.pt"', folder=str(tmp_path))
    subject, advice = words(tmp_path, source)
    assert subject.startswith(
        "`saved['opt']` is None, which line 5 (`None if best else opt.state_dict()`) saves for it"
    )
    assert "where `best`, into 'best.pt'. Load 'last.pt', which has it, save it in both cases, or go on" in advice


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (
            "state = dict(net=1, opt=opt.state_dict() if not best else None)",
            "saves for it where `best`. Load a file that",
        ),
        ('state = {"net": 1}; state["opt"] = opt.state_dict() if folder is None else None', "unless `folder is None`"),
        ('state = {"opt": None}', "which line 5 (`None`) saves for it: save its state there"),
    ],
)
def test_other_ways_to_save_none(state: str, says: str, tmp_path: Path) -> None:
    """dict(), an item that is set, always."""
    source = CHECKPOINT.format(state=state, name='"best.pt"', folder=str(tmp_path))
    assert says in words(tmp_path, source)[1]


@pytest.mark.parametrize(
    "state",
    [
        'state = {"net": None, "opt": load_it()}',  # nothing shows that it is None
        'state = {"opt": load_it()}; other = {"opt": None}',  # which is not saved
    ],
)
def test_what_is_saved_otherwise_is_not_blamed(state: str, tmp_path: Path) -> None:
    """Only that it is None in the file."""
    source = CHECKPOINT.format(state=state, name='"best.pt"', folder=str(tmp_path))
    source = source.replace("import os", "import os\ndef load_it(): return None", 1)
    subject, advice = words(tmp_path, source)
    assert "saves for it" not in subject and "saves for it" not in advice


def test_other_formats_are_read_alike(tmp_path: Path) -> None:
    """json.dump() with None always."""
    subject, _ = words(tmp_path, JSON.format(path=str(tmp_path / "meta.json")))
    assert subject == "`meta['scale']` is None, which line 4 (`None`) saves for it"
