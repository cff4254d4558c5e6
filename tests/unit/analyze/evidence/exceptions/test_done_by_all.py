"""Files that every rank removes, moves or makes: another rank was first, and the near cases where nothing says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import program_in

KEEPER = """\
import os, shutil, tempfile
import torch.distributed as dist
import torch.multiprocessing as mp
from pathlib import Path
class Keeper:
    def __init__(self, folder, rank):
        self.folder, self.rank, self.kept = folder, rank, []
        self.writer = rank == 0
    def drop(self, path):
        {does}
    def save(self, step):
        path = {path}
        dist.barrier()
        self.kept.append(path)
        if len(self.kept) > 2:
            {drops}
def main(rank, out):
    keeper = Keeper(out, rank)
    for step in range(9):
        keeper.save(step)
mp.spawn(main, args=("out",), nprocs=2)
"""
PATH = "os.path.join(self.folder, f'{step}.pt')"
WAY = [("Keeper.drop", 10), ("Keeper.save", 16), ("main", 20)]
GONE, THERE = "FileNotFoundError", "FileExistsError"


def ended(
    run: Path,
    does: str = "os.remove(path)",
    path: str = PATH,
    drops: str = "self.drop(self.kept.pop(0))",
    *,
    kind: str = GONE,
    missing: str = "0.pt",
    further: bool = True,
    both: bool = False,
    count: int = 2,
    below: str | None = None,
) -> Report:
    """Rank 0 at line 10; the others went on to a collective that it did not come to."""
    program = str(program_in(run, KEEPER.format(does=does, path=path, drops=drops)))
    job = Ranks(count)
    job.everybody(call())
    stack = [(name, program, line) for name, line in WAY]
    library = [] if below is None else [(does, below, 1)]
    values = {"file": "out/0.pt", "file kind": "absent", "file missing part": missing}
    for rank in range(count):
        if rank == 0 or both:
            variables = [{"name": name, "value": value} for name, value in values.items()]
            number = 2 if kind == GONE else 17
            text = f"[Errno {number}] No such file or directory: 'out/0.pt'"
            job.boxes[rank].at(7000).exception(kind, text, [*library, *stack], variables=variables).exit(1)
            job.endings[rank] = {"exit_code": 1}
        elif further:
            job.calls(rank, call(state="started"), first=2)
    job.terminated(*(rank for rank in range(1, count) if not both))
    return build_report(job.job(run))


@pytest.mark.parametrize(
    ("does", "kind", "says"),
    [
        ("os.remove(path)", GONE, "every rank removes that file there"),
        ("os.unlink(path)", GONE, "every rank removes that file there"),
        ("shutil.rmtree(path)", GONE, "every rank removes that folder there"),
        ("os.replace(path, path + '.old')", GONE, "every rank moves that file or folder there"),
        ("os.mkdir(path)", THERE, "every rank makes that folder there"),
        ("os.makedirs(path, exist_ok=False)", THERE, "every rank makes that folder there"),
        ("os.symlink('latest', path)", THERE, "every rank makes that link there"),
    ],
)
def test_operation_that_every_rank_does_names_who_was_first(does: str, kind: str, says: str, run: Path) -> None:
    """By the source, and by the collective behind the line."""
    report = ended(run, does, kind=kind)
    assert f"{says}, and rank 1 had probably done so before" in summary(report)
    assert "Let rank 0 alone" in advice(report)
    assert "As far as the source shows, no condition on the rank is around line 10" in advice(report)
    assert "as this process sees it" not in advice(report)


def test_path_method_is_one_too(run: Path) -> None:
    """Its error comes from pathlib."""
    report = ended(run, "Path(path).unlink()", below="/usr/lib/python3.11/pathlib.py")
    assert "every rank removes that file there, and rank 1 had probably done so before" in summary(report)
    assert "missing_ok=True" in advice(report)


def test_of_several_ranks_none_is_named(run: Path) -> None:
    """Which one it was is not recorded."""
    assert "and another rank had probably done so before" in summary(ended(run, count=3))


def test_check_around_the_line_does_not_help(run: Path) -> None:
    """The file was there a moment ago; that alone does not show that another rank has passed the line."""
    report = ended(run, "if os.path.exists(path): os.remove(path)")
    assert "every rank removes that file there, and rank 1 had probably done so before" in summary(report)
    assert "The check at line 10 does not help" in advice(report)


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "os.path.join(self.folder, f'{self.rank}-{step}.pt')"},
        {"path": "os.path.join(self.folder, str(dist.get_rank()), str(step))"},
        {"path": "os.path.join(tempfile.mkdtemp(), f'{step}.pt')"},
        {"path": "f'/tmp/{os.getpid()}/{step}'"},
        {"drops": "self.rank == 0 and self.drop(self.kept.pop(0))"},
        {"does": "if self.rank == 0: os.remove(path)"},
        {"does": "if self.writer: os.remove(path)"},
        {"does": "if self.unknown: os.remove(path)"},
        {"does": "os.remove(path) if dist.get_rank() == 0 else None"},
        {"does": "os.makedirs(path, exist_ok=True)", "kind": THERE},
        {"does": "shutil.copy(path, 'b')"},
        {"does": "open(path)"},
        {"missing": "out"},
        {"further": False},
        {"does": "if os.path.exists(path): os.remove(path)", "further": False},
        {"does": "if not os.path.exists(path): os.symlink('a', path)", "kind": THERE, "further": False},
        {"both": True},
        {"count": 1},
    ],
    ids=str,
)
def test_nothing_is_said_of_other_ranks_where_they_may_not_have_done_it(changes: dict[str, object], run: Path) -> None:
    """The path or the way is this rank's own; the folder is missing; nobody came further, or all failed so."""
    assert "every rank" not in summary(ended(run, **changes))  # type: ignore[arg-type]


def test_first_parameter_of_what_spawn_starts_is_the_rank(run: Path) -> None:
    """Whatever it is called."""
    source = """\
import os
import torch.multiprocessing as mp
def main(gpu, out):
    os.remove(os.path.join({path}))
mp.spawn(main, args=("out",), nprocs=2)
"""
    for number, (path, said) in enumerate([("out, str(gpu)", False), ("out, 'a'", True)]):
        place = run / str(number)
        place.mkdir(parents=True)
        program = str(program_in(place, source.format(path=path)))
        job = Ranks(2)
        job.everybody(call())
        job.calls(1, call(state="started"), first=2)
        values = [{"name": "file", "value": "out/a"}, {"name": "file missing part", "value": "a"}]
        job.boxes[0].at(7000).exception(GONE, "[Errno 2] x: 'out/a'", [("main", program, 4)], variables=values).exit(1)
        job.endings[0] = {"exit_code": 1}
        job.terminated(1)
        assert ("every rank" in summary(build_report(job.job(place)))) is said


RAN = """\
import os, torch, argparse
import torch.distributed as dist
from dataclasses import dataclass, field
from pathlib import Path
{before}
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    names = [f"out/{{i}}.pt" for i in range(8)]
    {lines}
    dist.barrier()
main()
"""


def ran(run: Path, lines: str, before: str = "", kind: str = GONE) -> Report:
    """Started by torchrun; rank 0 failed in the last of the lines."""
    text = RAN.format(before=before, lines=lines.replace("\n", "\n    "))
    program, count = str(program_in(run, text)), len(text.splitlines())
    job = Ranks(2)
    job.everybody(call())
    job.calls(1, call(state="started"), first=2)
    values = [{"name": "file", "value": "out/a"}, {"name": "file missing part", "value": "a"}]
    stack = [("main", program, count - 2), ("<module>", program, count)]
    job.boxes[0].at(7000).exception(kind, "[Errno 2] x: 'out/a'", stack, variables=values).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    return build_report(job.job(run))


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("", "os.remove('out/a')"),
        ("OUT = 'out'", "for step in range(4):\n    if step > 2:\n        os.remove(os.path.join(OUT, f'{step}'))"),
        ("", "for name in names:\n    os.remove(name)"),
        ("", "for name in sorted(Path('out').glob('*.tmp')):\n    os.remove(name)"),
        ("def old(n):\n    return Path('out') / f'{n}'", "os.remove(old(2))"),
        ("", "p = argparse.ArgumentParser()\np.add_argument('--out')\na = p.parse_args()\nos.remove(a.out)"),
        ("", "x = torch.ones(1)\ndist.all_reduce(x)\nif x.item() > 3:\n    os.remove('out/a')"),
    ],
)
def test_program_in_which_all_ranks_do_alike_is_told_so(before: str, lines: str, run: Path) -> None:
    """The source proves it: constants, options, pure functions, what all_reduce() made alike."""
    report = ran(run, lines, before)
    assert "every rank removes that file there, and rank 1 had probably done so before" in summary(report)


OF_SOME = [
    ("", "log = open('log', 'w') if rank == 0 else None\nif log is not None:\n    os.remove('out/a')"),
    ("def role():\n    return 'a' if dist.get_rank() else 'b'", "if role() == 'b':\n    os.remove('out/a')"),
    ("class S:\n    pass", "s = S()\ns.chief = rank == 0\nif s.chief:\n    os.remove('out/a')"),
    ("", "kept = []\nif rank == 0:\n    kept.append('a')\nif len(kept) > 0:\n    os.remove(kept.pop(0))"),
    ("", "kept = []\nload(kept)\nif len(kept) > 0:\n    os.remove(kept.pop(0))"),
    ("", "if rank:\n    return\nos.remove('out/a')"),
    ("", "try:\n    load()\nexcept OSError:\n    os.remove('out/a')"),
    ("", "while store.add('next', 1) < 8:\n    os.remove('out/a')"),
    ("", "if os.path.exists('flag'):\n    os.remove('out/a')"),
    ("", "for step, x in enumerate(loader):\n    os.remove(f'out/{step}')"),
]
OF_ONE = [
    ("", "start = rank * 2\nfor i in range(start, start + 2):\n    os.remove(names[i])"),
    ("", "with split_between(names) as mine:\n    for name in mine:\n        os.remove(name)"),
    ("", "for (name,) in DataLoader(names, sampler=sampler):\n    os.remove(name)"),
    ("def folder():\n    os.chdir(f'r{dist.get_rank()}')", "folder()\nos.remove('a')"),
    ("", "part = f'part{rank}'\npath = os.path.join('out', part)\nos.remove(path)"),
    ("", "part = os.environ['SLURM_PROCID']\nos.remove(f'out/{part}')"),
    ("@dataclass\nclass C:\n    out: str = field(default_factory=make)", "c = C()\nos.remove(c.out)"),
    (
        "p = argparse.ArgumentParser()\np.add_argument('--out', default='a')",
        "a = p.parse_args()\na.out = os.path.join(a.out, str(rank))\nos.remove(a.out)",
    ),
]


@pytest.mark.parametrize(("before", "lines"), [*OF_SOME, *OF_ONE])
def test_nothing_is_said_where_the_way_or_the_path_is_not_proven_alike(before: str, lines: str, run: Path) -> None:
    """The line runs on some ranks only, or the path is the rank's own; or a library decides it."""
    assert "every rank" not in summary(ran(run, lines, before))


def test_decorator_may_let_one_rank_alone_come_there(run: Path) -> None:
    """What it does is not followed, whoever wrote it."""
    source = RAN.replace("def main", "@rank_zero_only\ndef main")
    assert "@rank_zero_only" in source
    program = str(program_in(run, source.format(before="from lib import rank_zero_only", lines="os.remove('out/a')")))
    job = Ranks(2)
    job.everybody(call())
    job.calls(1, call(state="started"), first=2)
    values = [{"name": "file", "value": "out/a"}, {"name": "file missing part", "value": "a"}]
    stack = [("main", program, 11), ("<module>", program, 13)]
    job.boxes[0].at(7000).exception(GONE, "[Errno 2] x: 'out/a'", stack, variables=values).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    assert "every rank" not in summary(build_report(job.job(run)))


LISTED = """\
import glob, os, shutil
import torch.distributed as dist
import torch.multiprocessing as mp
CFG = dict(out="out", keep=1)
def prune(out, keep):
    folders = sorted(glob.glob(os.path.join(out, "step-*")))
    for folder in folders[:-keep]:
        shutil.rmtree(folder)
def clean(cfg):
    {changes}
    dist.barrier()
    prune(cfg["out"], cfg["keep"])
def main(rank, cfg):
    clean(cfg)
mp.spawn(main, args=(CFG,), nprocs=2)
"""


@pytest.mark.parametrize(
    ("changes", "named"),
    [("print(cfg)", True), ("cfg['out'] += str(dist.get_rank())", False), ("cfg = own(cfg)", False)],
)
def test_folders_that_every_rank_lists(changes: str, named: bool, run: Path) -> None:
    """In a folder of a dict of options that functions of the program pass on, and do not change."""
    program = str(program_in(run, LISTED.format(changes=changes)))
    job = Ranks(2)
    job.everybody(call())
    stack = [(name, program, line) for name, line in (("prune", 8), ("clean", 12), ("main", 14))]
    text = "[Errno 2] No such file or directory: 'out/step-1'"
    job.boxes[0].at(7000).exception(GONE, text, [("rmtree", "/usr/lib/python3.11/shutil.py", 1), *stack]).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.calls(1, call(state="started"), first=2)
    job.terminated(1)
    report = build_report(job.job(run))
    assert ("every rank removes that folder there, and rank 1 had probably" in summary(report)) is named
