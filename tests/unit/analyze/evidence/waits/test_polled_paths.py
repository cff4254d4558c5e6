"""Paths that each rank makes for itself, in a loop that waits for files of all."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.waits.polled_paths import OwnPath, own_path
from pytracer.report.job import PythonFrame

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**13)
HEAD = "import os, random, tempfile, time, uuid\nimport numpy as np\nfrom pathlib import Path\n"
STORE = """\
class Gate:
    def __init__(self, folder, world):
        self.folder, self.world = folder, world
    def wait(self):
        stage = os.path.join(self.folder, "arrived")
        while len(os.listdir(stage)) < self.world:
            time.sleep(0.1)
def seed_all(seed):
    random.seed(seed)
    {seed}
def main(rank, world, dist):
    seed_all(3)
    {made}
    gate = Gate(os.path.join("/data", f"run_{{name}}"), world)
    gate.wait()
main(0, 2, None)
"""
WAY = ((10, "wait"), (18, "main"), (19, "<module>"))


def found(folder: Path, source: str, way: tuple[tuple[int, str], ...]) -> OwnPath | None:
    """Of the condition of the only `while`, or of the only `if` in it."""
    file = folder / "train.py"
    file.write_text(HEAD + source)
    loop = next(item for item in ast.walk(ast.parse(HEAD + source)) if isinstance(item, ast.While))
    left = next((item for item in loop.body if isinstance(item, ast.If)), None)
    frames = [PythonFrame(file=str(file), line=line, function=function) for line, function in way]
    return own_path(SNAPSHOT, frames, left.test if left is not None else loop.test)


@pytest.mark.parametrize(
    ("made", "seed", "said"),
    [
        (
            "name = np.random.randint(1 << 20)",
            "pass",
            "line 16 (`np.random.randint`) draws on each rank for itself: no line s",
        ),
        ("name = hex(np.random.randint(9))", "np.random.seed(rank)", "line 13 seeds by the rank"),
        ("name = uuid.uuid4().hex[:6]", "pass", "line 16 (`uuid.uuid4`) gives each process another one"),
        ("name = os.getpid()", "pass", "line 16 (`os.getpid`) gives each process another one"),
        ("name = time.strftime('%H%M%S')", "pass", "line 16 (`time.strftime`) takes the time of each process"),
        ("name = rank", "pass", "line 16 puts the rank into it (`rank`)"),
    ],
)
def test_part_of_a_path_that_is_another_one_on_each_rank(made: str, seed: str, said: str, tmp_path: Path) -> None:
    """Through the object that waits, and the folder that it was given."""
    own = found(tmp_path, STORE.format(made=made, seed=seed), WAY)
    assert own is not None and said in own.sentence and own.path == "stage"
    assert own.sure == ("time" not in made)
    assert own.sentence.startswith("Each looks" if own.sure else "Each may look")
    assert own.of_all and own.advice.startswith("Make `stage` the same path on all ranks: ")


@pytest.mark.parametrize(
    ("made", "seed"),
    [
        ("name = 'a'", "pass"),
        ("name = os.environ['RUN']", "pass"),
        ("name = np.random.randint(1 << 20)", "np.random.seed(seed)"),  # the same on all ranks
        ("name = random.randrange(9)", "pass"),  # seeded by seed_all()
        ("name = np.random.default_rng(7).integers(9)", "pass"),
        ("held = [uuid.uuid4().hex]\n    dist.broadcast_object_list(held)\n    name = held[0]", "pass"),
        ("name = uuid.uuid4().hex if rank == 0 else read()", "pass"),
        ("name = load(tempfile.mkdtemp()).name", "pass"),  # an object that has more than the folder
    ],
)
def test_path_that_the_ranks_share_or_that_is_not_known_is_no_reason(made: str, seed: str, tmp_path: Path) -> None:
    """The look-alikes."""
    more = made.count("\n")
    way = (WAY[0], (18 + more, "main"), (19 + more, "<module>"))
    assert found(tmp_path, STORE.format(made=made, seed=seed), way) is None


FLAG = """\
def wait_for(tag, root):
    flag = Path(root) / f"{{tag}}.done"
    while True:
        if flag.exists():
            break
        time.sleep(1)
def main(rank):
    root = {0}
    wait_for("index", root)
main(0)
"""
FLAG_WAY = ((9, "wait_for"), (12, "main"), (13, "<module>"))


@pytest.mark.parametrize(
    ("root", "named"),
    [("tempfile.mkdtemp()", True), ("Path('/data')", False), ("Path('/data') / str(rank)", False)],
)
def test_flag_in_a_folder_of_the_process(root: str, named: bool, tmp_path: Path) -> None:
    """By `if flag.exists()` of a loop without end; the rank may be in the path of another one's file.

    Whether another rank has to write it is not known.
    """
    own = found(tmp_path, FLAG.format(root), FLAG_WAY)
    assert (own is not None) == named
    assert own is None or "line 11 (`tempfile.mkdtemp`) gives each process another one" in own.sentence
    assert own is None or own.advice.startswith("If another rank is to write what each looks for, make `flag` the")


READY = """\
class Meeting:
    def __init__(self, root):
        self.dir = Path(root) / {0}
    def present(self):
        return len(list(self.dir.glob("*.here")))
    def join(self, world):
        while self.present() < world:
            time.sleep(1)
def main():
    Meeting("/data").join(2)
main()
"""


@pytest.mark.parametrize(("part", "named"), [("f'{random.random()}'", True), ("'common'", False)])
def test_condition_may_ask_by_a_method_of_the_program(part: str, named: bool, tmp_path: Path) -> None:
    own = found(tmp_path, READY.format(part), ((11, "join"), (13, "main"), (14, "<module>")))
    assert (own is not None) == named


ALONE = """\
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(1)
def fresh():
    return f"/data/{{uuid.uuid4().hex}}"
def main(rank, store):
    {0}
    if rank == 0:
        open(path, "w").write("1")
    else:
        wait_for(path)
main(0, 1)
"""


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("path = fresh()", True),
        ("path = '/data/one'", False),
        ("path = fresh() if rank == 0 else store.get('path')", False),
        ("path = fresh(); store.set('path', path)", False),
        ("path = fresh(); send(json.dump({'path': path}, pipe))", False),
        ("path = fresh(); json.dump([1], path)", True),
    ],
)
def test_rank_that_looks_alone(made: str, named: bool, tmp_path: Path) -> None:
    """In a branch of its own; what it drew is another one on each rank, unless it may have sent it."""
    own = found(tmp_path, ALONE.format(made), ((6, "wait_for"), (14, "main"), (15, "<module>")))
    assert (own is not None) == named
    said = "each rank has a path of its own, as line 8 (`uuid.uuid4`) gives each process another one"
    assert own is None or (own.alone == said and own.path == "path" and not own.of_all)


CHOICE = """\
def main(given, root):
    name = {0}
    while not os.path.exists(f"{{root}}/{{name}}"):
        time.sleep(1)
main({1}, "/data")
"""


@pytest.mark.parametrize("given", ["None", "os.environ.get('RUN')", "'run-7'", "parse_args().run"])
@pytest.mark.parametrize(
    "made",
    [
        "given or uuid.uuid4().hex",
        "uuid.uuid4().hex if given is None else given",
        "f'{given or uuid.uuid4()}.bin'",
        "given\n    if not name: name = uuid.uuid4().hex",
    ],
)
def test_draw_in_place_of_what_may_be_given_needs_that_nothing_is(given: str, made: str, tmp_path: Path) -> None:
    """A name from the environment is the same on all ranks."""
    more = made.count("\n")
    own = found(tmp_path, CHOICE.format(made, given), ((7 + more, "main"), (8 + more, "<module>")))
    assert own is None if given != "None" or more else own is not None


def test_path_that_the_rank_draws_in_its_own_branch_is_not_each_ranks(tmp_path: Path) -> None:
    """The look-alike."""
    source = ALONE.format("pass").replace("        wait_for(path)", "        path = fresh(); wait_for(path)")
    assert found(tmp_path, source, ((6, "wait_for"), (14, "main"), (15, "<module>"))) is None
