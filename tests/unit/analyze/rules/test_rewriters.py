"""The line that rewrites the very file that another one has mapped, and the call that led there; look-alikes do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

START = 0x7F00_0000_0000
PATH = "/data/run/tokens.bin"


def died_in(run: Path, frames: list[tuple[str, str, int]], **files: str) -> Report:
    for name, source in files.items():
        file = run / f"{name}.py"
        file.write_text(source, encoding="utf-8")
        os.utime(file, (0, 0))  # before the recorded process began
    report = died(
        run, signal=7, code=2, addr=START + 8200, file_nbytes=4100, file_room=1 << 30, file_system=0xEF53,
        python=[(function, str(run / f"{file}.py"), line) for function, file, line in frames],
        stack_of=[(s.TORCH_CPU, "at::native::f()")],
        mappings=[PROGRAM, (START, START + 0x10_0000, "r--s", 0, PATH)],
    )  # fmt: skip
    assert verdict(report) == ("truncated-mapping", "certain")
    return report


PACK = """import os
FILE = os.path.join("/data/run", "tokens.bin")
def pack(rows, path=FILE):
    out = np.memmap(path, dtype="i4", mode="w+", shape=(rows,))
class Tokens:
    def __init__(self, path=FILE):
        self.rows = np.memmap(path, dtype="i4", mode="r")
    def get(self, i):
        return self.rows[i].sum()
def check():
    pack(2{other})
def main():
    pack(90)
    data = Tokens()
    for i in range(4):
        data.get(i)
        {then}
main()
"""
STACK = [("Tokens.get", "train", 9), ("main", "train", 16), ("<module>", "train", 18)]


def packed(run: Path, other: str = "", then: str = "check()") -> Report:
    return died_in(run, STACK, train=PACK.replace("{other}", other).replace("{then}", then))


def test_a_default_path_that_is_mapped_is_rewritten_by_the_call_that_passes_none(run: Path) -> None:
    report = packed(run)
    assert (
        "; line 11 in check (`pack(2)`) rewrites it by line 4 (`np.memmap(path, ..., mode='w+')`) while line 7 has it"
    ) in summary(report)
    assert advice(report).startswith("Give line 11 in check (`pack(2)`) another file name: by line 4 (`np.memmap(")


@pytest.mark.parametrize(
    ("other", "then"),
    [(', "/data/run/valid.bin"', "check()"), ("", "pass")],
    ids=["another file of the folder", "only before it is mapped"],
)
def test_other_files_and_what_ran_before_rewrite_nothing(other: str, then: str, run: Path) -> None:
    report = packed(run, other, then)
    assert "rewrites" not in summary(report) and "may have written" not in summary(report)
    assert not advice(report).startswith("Give line")


STORE = """class Store:
    def __init__(self, name):
        self.path = "/data/run/" + name
    def put(self, rows):
        with open(self.path, {mode}) as f:
            f.write(rows)
    def view(self):
        return np.memmap(self.path, mode="r")
    def cut(self, n):
        with open(self.path, "r+b") as f:
            f.truncate(n)
"""
MAIN = """from store import Store
def main():
    store, other = Store("tokens.bin"), Store("valid.bin")
    store.put(a)
    rows = store.view()
    {then}
    rows.sum()
if __name__ == "__main__":
    main()
"""
OF_TWO = [("main", "train", 7), ("<module>", "train", 9)]


@pytest.mark.parametrize(
    ("then", "mode", "says"),
    [
        ("store.put(b)", '"wb"', 'line 6 in main (`store.put(b)`) rewrites it by store.py:5 (`with open(self.path'),
        ("store.cut(b)", '"wb"', "line 6 in main (`store.cut(b)`) shortens it by store.py:11 (`f.truncate(n)`)"),
        ("other.put(b)", '"wb"', None),
        ("store.put(b)", '"r+b"', None),
        ("rows.max()", '"wb"', None),
        ("rows.sum(); store.put(b) if late() else None", '"wb"', "line 6 in main ("),
    ],
    ids=["rewrites", "truncates", "other object", "r+", "nothing", "maybe"],
)  # fmt: skip
def test_the_object_of_another_file_is_followed_to_its_path(then: str, mode: str, says: str | None, run: Path) -> None:
    report = died_in(run, OF_TWO, train=MAIN.replace("{then}", then), store=STORE.replace("{mode}", mode))
    assert (says or "the file held") in summary(report)
    assert says is not None or not ("rewrites" in summary(report) or "shortens" in summary(report))
    assert says is None or "while store.py:8 has it mapped" in summary(report)


@pytest.mark.parametrize(("then", "same"), [("store.put(b)", True), ("other.put(b)", False)])
def test_a_path_below_the_folder_of_an_object_is_that_objects(then: str, same: bool, run: Path) -> None:
    store = STORE.replace("{mode}", '"wb"').replace("open(self.path", 'open(self.folder / "tokens.bin"')
    store = store.replace("memmap(self.path", 'memmap(self.folder / "tokens.bin"')
    store = store.replace('self.path = "/data/run/" + name', "self.folder = Path(name)")
    source = MAIN.replace("{then}", then).replace('"tokens.bin"', '"/data/run"').replace('"valid.bin"', '"/data/older"')
    report = died_in(run, OF_TWO, train=source, store=store)
    assert ("line 6 in main (`store.put(b)`) rewrites it by store.py:5" in summary(report)) == same
    assert same or ("rewrites" not in summary(report) and "may have written" not in summary(report))


SHARDS = """def main(folder):
    for name in names:
        torch.save(rows, f"{folder}/{name}.bin")
        part = torch.load(f"{folder}/{name}.bin", mmap=True)
        part.sum()
main(a)
"""


def test_an_unknown_name_of_a_loop_may_be_another_one_in_the_next_round(run: Path) -> None:
    report = died_in(run, [("main", "train", 5), ("<module>", "train", 6)], train=SHARDS)
    assert "rewrites" not in summary(report)


SAVED = """def path_of(name):
    return f"{ROOT}/{name}.bin"
def save(state):
    torch.save(state, path_of("tokens"))
ROOT = os.environ["ROOT"]
save(a)
old = torch.load(path_of({mapped!r}), mmap=True)
save(b)
old.sum()
"""


@pytest.mark.parametrize(("mapped", "same"), [("tokens", True), ("older", False)])
def test_a_path_that_both_lines_make_alike_is_the_same(mapped: str, same: bool, run: Path) -> None:
    """Although what its folder is stands nowhere."""
    report = died_in(run, [("<module>", "train", 9)], train=SAVED.replace("{mapped!r}", repr(mapped)))
    assert ("; line 8 (`save(b)`) rewrites it by line 4 (`torch.save(" in summary(report)) == same


CACHED = """FILE = "/data/run/tokens.bin"
def get():
    {guard}
        np.memmap(FILE, mode="w+", shape=(9,))
    return np.memmap(FILE, mode="r")
a = get()
b = get()
a.sum()
"""


@pytest.mark.parametrize(
    ("guard", "again"),
    [("if fresh:", True), ("if not os.path.exists(FILE):", False), ("if CACHE.get(FILE) is None:", False)],
)
def test_what_makes_only_a_missing_file_rewrites_none(guard: str, again: bool, run: Path) -> None:
    report = died_in(run, [("<module>", "train", 8)], train=CACHED.replace("{guard}", guard))
    assert ("rewrites" in summary(report)) == again and "may have written" not in summary(report)


VOLUME = """import os
class Image:
    def __init__(self, data):
        self.data = data
    @classmethod
    def load(cls, path):
        data = np.memmap(path, mode="r")
        return cls(data)
    def save(self, path):
        with open(path, "wb") as f:
            for plane in self.data:
                f.write(plane)
class Conform:
    def __call__(self, name):
        path = os.path.join("/data/run", name)
        img = Image.load(path)
        if img.data.max():
            img.save({path})
        return path
def main(names):
    conform = Conform()
    {call}
main(names)
"""
IN_SAVE = [
    ("Image.save", "train", 12), ("Conform.__call__", "train", 18), ("main", "train", 22), ("<module>", "train", 23)
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "call", "known"),
    [
        ("path", "[conform(name) for name in names]", True),
        ("os.path.join('/data/out', name)", "[conform(name) for name in names]", False),
        ("path", "run(conform, names)", False),
    ],
    ids=["the same path", "another folder", "who calls it is not known"],
)
def test_an_object_that_a_classmethod_made_and_one_that_is_called_are_followed(
    path: str, call: str, known: bool, run: Path
) -> None:
    report = died_in(run, IN_SAVE, train=VOLUME.replace("{path}", path).replace("{call}", call))
    words = '; line 18 in Conform.__call__ (`img.save(path)`) rewrites it by line 10 (`with open(path, "wb") as f:`)'
    assert (words in summary(report)) == known
    assert known or "rewrites" not in summary(report)


SHORTENED = """import os
FILE = os.path.join("/data/run", "tokens.bin")
class Tokens:
    def __init__(self, path):
        self.rows = np.memmap(path, dtype="i4", mode="r")
    def get(self, i):
        return self.rows[i].sum()
class Store:
    def __init__(self, path):
        self.path = path
    def keep(self, count):
        with open(self.path, "r+b") as f:
            f.truncate(4 * count)
def train(data):
    store = Store(FILE)
    for epoch in range(3):
        for i in range(4):
            data.get(i)
        store.keep(2)
train(Tokens(FILE))
"""


def test_what_a_call_is_given_has_been_made_before_it_runs(run: Path) -> None:
    """`train(Tokens(FILE))`: one line maps the file and leads to the one that shortens it."""
    stack = [("Tokens.get", "train", 7), ("train", "train", 18), ("<module>", "train", 20)]
    report = died_in(run, stack, train=SHORTENED)
    assert "line 19 in train (`store.keep(2)`) shortens it by line 13" in summary(report)
    assert advice(report).startswith("Do not shorten the file at line 19 in train")
