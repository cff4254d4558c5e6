"""Lines that may have shortened a mapped file: those that write one of its name, not those that write others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, verdict

START = 0x7F00_0000_0000
ASIDE = "A file that is mapped must not be shortened"


def advised(
    run: Path,
    source: str,
    path: str = "/data/features.f32",
    line: int = 1,
    inside: tuple[tuple[str, str, int], ...] = (),
) -> str:
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    report = died(
        run, signal=7, code=2, addr=START + 8200, file_nbytes=4100, file_room=1 << 30, file_system=0xEF53,
        python=[*inside, ("<module>", str(file), line)], stack_of=[(s.TORCH_CPU, "at::native::f()")],
        mappings=[PROGRAM, (START, START + 0x10_0000, "r--s", 0, path)],
    )  # fmt: skip
    assert verdict(report) == ("truncated-mapping", "certain")
    return advice(report)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = a\nopen('/data/features.f32', 'wb')\n", "Look at line 2 (`open('/data/features.f32', 'wb')`): it may"),
        ("x = a\nnp.memmap(d + '/features.f32', mode='w+')\n", "Look at line 2 (`np.memmap(d + '/features.f32',"),
        ("x = a\nx.tofile(os.path.join(d, 'features.f32'))\n", "Look at line 2 (`x.tofile(os.path.join(d,"),
        ("x = a\ntorch.save(x, p / 'features.f32')\n", "Look at line 2 (`torch.save(x, p / 'features.f32')`)"),
        ("x = a\nshutil.copy(x, 'features.f32')\n", "Look at line 2 (`shutil.copy(x, 'features.f32')`)"),
        ("x = a\np = 'features.f32'\nos.truncate(p, 0)\n", "Look at line 3 (`os.truncate(p, 0)`)"),
        ("x = a\nsubprocess.run(['make', 'features.f32'])\n", "Look at line 2 (`subprocess.run(['make', 'features."),
        ("x = a\nopen('/data/features.f32', 'rb')\n", None),
        ("x = a\nopen('/data/labels.f32', 'wb')\n", None),
        ("x = a\nshutil.copy('features.f32', x)\n", None),
        ("x = a\nmodel.save('features.f32')\n", None),
        ("x = a\nnp.memmap('features.f32', mode='r+')\n", None),
    ],
    ids=["open", "memmap", "tofile", "save", "copy", "variable", "program", "reads", "another", "from", "model", "r+"],
)  # fmt: skip
def test_a_line_that_writes_a_file_of_that_name_is_named(source: str, says: str | None, run: Path) -> None:
    said = advised(run, source)
    assert said.startswith(says) if says is not None else said.startswith("Find out who truncated")
    assert (ASIDE in said) == (says is not None)


BUILD = """x = a
def build(path, rows):
    with open(path, "wb") as out:
        out.write(rows)

class Features:
    def __init__(self, folder):
        self.path = os.path.join(folder, "features.f32")
        if not os.path.exists(self.path):
            build(self.path, 3)

def evaluate(folder):
    build({}, 2)
"""


def test_the_call_that_gives_the_name_is_named_not_the_one_that_makes_a_missing_file(run: Path) -> None:
    said = advised(run, BUILD.format('os.path.join(folder, "features.f32")'))
    assert said.startswith('Look at line 13 (`build(os.path.join(folder, "features.f32"...`): it may')
    assert 'by line 3 (`with open(path, "wb") as out:`)' in said
    said = advised(run, BUILD.format('os.path.join(folder, "labels.f32")'))
    assert said.startswith("Look at line 10 (`build(self.path, 3)`)")


SWEEP = """x = a
def sweep(prefix):
    for path in glob.glob(prefix + "*"):
        os.truncate(path, 0)

Process(target=sweep, args=({},))
"""


def test_files_of_a_prefix_are_named_by_it_and_shared_memory_is_torchs(run: Path) -> None:
    segment = "/dev/shm/torch_7_8_1"
    said = advised(run, SWEEP.format("f'/dev/shm/torch_{pid}_'"), segment)
    assert said.startswith(
        "Look at line 4 (`os.truncate(path, 0)`): it may write or truncate files whose name begins with"
    )
    assert "begins with /dev/shm/torch_, which line 6 (`Process(target=sweep, args=(" in said
    assert "torch makes its shared memory with its full size" in said
    assert advised(run, SWEEP.format("'/var/tmp/'"), segment).startswith("torch makes its shared memory")


SHARDS = """x = a
def shard_path(i):
    return f"{root}/{}-{{i:02d}}.f32"

def write(i):
    with open(shard_path(i), "wb") as out:
        out.write(x)
"""


def test_a_name_with_a_number_in_it_is_matched_by_its_pattern(run: Path) -> None:
    """The function that makes it is followed; the look-alike makes other names."""
    said = advised(run, SHARDS.replace("{}", "features").replace("{{", "{").replace("}}", "}"), "/data/features-07.f32")
    assert said.startswith('Look at line 6 (`with open(shard_path(i), "wb") as out:`): it may write or truncate')
    said = advised(run, SHARDS.replace("{}", "labels").replace("{{", "{").replace("}}", "}"), "/data/features-07.f32")
    assert said.startswith("Find out who truncated")


MAPPED_BY = """def load(path):
    {}

def export(path):
    torch.save(half, path)

def main(path):
    torch.save(whole, 'features.f32')
    model = load(path)
    export('features.f32')
"""


@pytest.mark.parametrize(("maps", "line"), [("return torch.load(path, mmap=True)", 10), ("return torch.load(path)", 8)])
def test_the_file_that_is_mapped_then_is_not_the_one_that_shortened_it(maps: str, line: int, run: Path) -> None:
    """Also where the function that maps it lies between."""
    assert advised(run, MAPPED_BY.format(maps), line=10).startswith(f"Look at line {line} (")


TABLE = """x = a
class Table:
    def __init__(self, path):
        self.path = path

    def load(self):
        return feather.read_table(self.path, memory_map=True)

    def save(self, table):
        feather.write_feather(table, self.path)

store = Table(root / "{}")
"""


def test_a_method_that_writes_the_path_its_object_was_made_with_is_named(run: Path) -> None:
    said = advised(run, TABLE.format("features.f32"))
    assert said.startswith("Look at line 10 (`feather.write_feather(table, self.path)`): it may write")
    assert "leave out memory_map=True at line 7" in said
    assert advised(run, TABLE.format("labels.f32")).startswith("Find out who truncated")


def test_the_line_that_was_writing_at_the_crash_is_said_to_have(run: Path) -> None:
    inside = (("write_feather", "/venv/lib/python3.11/site-packages/pyarrow/feather.py", 184),)
    said = advised(run, TABLE.format("features.f32"), line=10, inside=inside)
    assert said.startswith("The process was in line 10 (`feather.write_feather(table, self.path)`), which writes")


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("x = a\nlive = os.path.join(root, 'live')\nshutil.copytree(new, live, dirs_exist_ok=True)\n", True),
        ("x = a\nlive = os.path.join(root, 'live')\nshutil.copytree(new, live)\n", False),
        ("x = a\nlive = os.path.join(root, 'live')\nshutil.copytree(new, live, dirs_exist_ok=False)\n", False),
        ("x = a\nkept = os.path.join(root, 'kept')\nshutil.copytree(new, kept, dirs_exist_ok=True)\n", False),
        ("x = a\nlive = os.path.join(root, 'live')\nshutil.copytree(live, kept, dirs_exist_ok=True)\n", False),
    ],
    ids=["over", "new", "false", "another", "from"],
)
def test_a_folder_that_is_copied_over_the_one_of_the_file(source: str, named: bool, run: Path) -> None:
    said = advised(run, source, path="/data/live/model.safetensors")
    assert said.startswith("Look at line 3 (`shutil.copytree(new, live") == named
    assert said.startswith("Find out who truncated") != named


def test_what_made_the_file_before_it_was_mapped_did_not_shorten_it(run: Path) -> None:
    source = (
        "x = a\ndef make():\n    feather.write_feather(x, '/data/features.f32')\n"
        "def shrink(path):\n    feather.write_feather(y, path)\n"
        "make()\nt = feather.read_table('/data/features.f32', memory_map=True)\nshrink('/data/features.f32')\n"
    )
    assert advised(run, source).startswith("Look at line 8 (`shrink('/data/features.f32')`): it may")
