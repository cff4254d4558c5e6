"""Random histories of storages: the tables agree with a model, also when they are too small.

The model is a dictionary. Each example is a separate process that plays a history; its recording is then read.
"""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core
from tests.native.harness import Native, base_of, inconsistent, size_of

pytestmark = needs_core

FREED_STORAGES = 512
SLOTS = 1 << 16
EXTERNAL_SLOTS = 4096
FOREIGN_BASE = 0x6000_0000_0008  # external memory begins anywhere
bounded = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

# ---- the table of live storages ----

CHILD = """
import json
with open({history!r}) as file:
    history, held, limited = json.load(file)
if limited:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limited, limited))
if held:
    t.testing_hold(1, 9, U64(held), 0)
for word, base, nbytes in history:
    getattr(t, "testing_" + word)(U64(base), U64(nbytes))
"""


@dataclass
class Model:
    """The expected table. `known` are live storages by address, `dead` those that ended, the last one last."""

    known: dict[int, int] = field(default_factory=dict)
    dead: list[tuple[int, int]] = field(default_factory=list)
    stale: int = 0
    unknown: int = 0

    def allocate(self, base: int, nbytes: int) -> None:
        self.stale += base in self.known
        self.known[base] = nbytes

    def release(self, base: int) -> None:
        if base in self.known:
            self.dead.append((base, self.known.pop(base)))
        else:
            self.unknown += 1


Move = tuple[str, int, bool, int]  # word, slot, large, how often

# Allocations and frees at few addresses, so that each is used again; also missed and unknown frees.
histories = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "release", "churn"]), st.integers(0, 12), st.booleans(), st.integers(1, 300)
    ),
    max_size=40,
)


def spelled_out(moves: list[Move]) -> list[tuple[str, int, int]]:
    """Every single allocation and free: word, base, size."""
    life, history = 0, []
    for word, slot, large, times in moves:
        base = base_of(1, slot, large)
        for _ in range(times if word == "churn" else 1):
            life += 1
            if word != "release":
                history.append(("allocate", base, size_of(1, life, large)))
            if word != "allocate":
                history.append(("release", base, 0))
    return history


def played(moves: list[Move]) -> tuple[Model, list[tuple[str, int, int]]]:
    """The model after a history, and the history with the size of each free, which determines its call site."""
    model, told = Model(), []
    for word, base, nbytes in spelled_out(moves):
        told.append((word, base, model.known.get(base, nbytes)))
        if word == "allocate":
            told[-1] = (word, base, nbytes)
            model.allocate(base, nbytes)
        else:
            model.release(base)
    return model, told


def with_history(native: Native, code: str, history: object) -> str:
    """The code, which reads the history from a file: it is too long for an argument."""
    told = native.run.with_name("history.json")
    told.write_text(json.dumps(history), encoding="utf-8")
    return code.replace("{history!r}", repr(str(told)))


def box_after(native: Native, code: str, history: object) -> Snapshot:
    """The recording of a child that ran this, alone in its run directory."""
    shutil.rmtree(native.run, ignore_errors=True)
    return native.box(with_history(native, code, history))


@given(history=histories)
@bounded
def test_table_and_freed_storages_agree_with_the_model(native: Native, history: list[Move]) -> None:
    """Live storages are in the table with their sizes; the last 512 small and 512 large lifetimes are in the rings."""
    model, told = played(history)
    box = box_after(native, CHILD, [told, 0, 0])
    assert {s.base: s.nbytes for s in box.storages if s.state == "live"} == model.known
    assert inconsistent(box.storages) == []
    for large in (False, True):
        dead = [item for item in model.dead if (item[1] >= 128 * 1024) == large][-FREED_STORAGES:]
        freed = sorted(
            (s for s in box.storages if s.state == "freed" and (s.nbytes >= 128 * 1024) == large), key=lambda s: s.order
        )
        assert [(s.base, s.nbytes) for s in freed] == dead
    assert box.counts["stale_storages"] == model.stale
    assert box.counts["unknown_frees"] == model.unknown
    assert box.counts["dropped"] == 0


@pytest.mark.slow
@given(history=histories, room=st.integers(-40, 40))
@settings(bounded, max_examples=8)
def test_full_table_loses_new_storages_only_and_counts_them(native: Native, history: list[Move], room: int) -> None:
    """In a table that cannot grow, older storages stay; each lost one is counted, and again when it ends."""
    model, told = played(history)
    held = SLOTS - max(room, 0) * 8
    box = box_after(native, CHILD, [told, held, 8 << 20])
    live = {s.base: s.nbytes for s in box.storages if s.state == "live"}
    of_history = {base: nbytes for base, nbytes in live.items() if base in model.known}
    older = {base: nbytes for base, nbytes in live.items() if base not in model.known}
    kept_before = {base_of(9, i, False): size_of(9, i, False) for i in range(held)}
    assert older.items() <= kept_before.items()
    lost_before = held - len(older)
    assert inconsistent(box.storages) == []
    assert all(model.known[base] >= 0 for base in of_history)
    dropped, unknown = box.counts["storages_dropped"], box.counts["unknown_frees"]
    lives = sum(word == "allocate" for word, _, _ in told)
    assert lost_before <= dropped <= lost_before + lives
    # The end of a lost storage is an unknown free; one whose free was missed before it was lost is in neither.
    lost_now = len(model.known) - len(of_history)
    assert lost_before + lost_now <= dropped
    assert unknown - model.unknown <= dropped - lost_before
    assert {(s.base, s.nbytes) for s in box.storages if s.state == "freed"} <= set(model.dead)


# ---- external allocations ----

FOREIGN = """
import json
class Birth(ctypes.Structure):
    _fields_ = [(name, U64) for name in ("addr", "nbytes", "identity", "file_offset")] + [("file", ctypes.c_char_p)]
    _fields_ += [(name, ctypes.c_uint32) for name in ("origin", "site_id", "site_where", "older")]
nobody = ctypes.CFUNCTYPE(U64, ctypes.c_bool)(lambda large: 0)
core.pytracer_external_allocated.restype = U64
numbers = {}
with open({history!r}) as file:
    history = json.load(file)
for word, life in history:
    if word == "end":
        core.pytracer_external_freed(U64(numbers[life]), nobody)
    else:
        birth = Birth({base} + life // 2 * 24, life, life, life, b"/data/%d" % life, 16 + life % 6, 0, 0, life % 2)
        numbers[life] = core.pytracer_external_allocated(ctypes.byref(birth))
"""


@st.composite
def external_histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Many begin, some end, in any order; lifetime n begins at the address of lifetime n - 1 when n is odd."""
    history, live, life = [], OrderedDict[int, None](), 0
    for begins, ends in draw(
        st.lists(st.tuples(st.integers(0, 3000), st.lists(st.integers(0, 1 << 16), max_size=400)), max_size=4)
    ):
        for _ in range(begins):
            life += 1
            history.append(("begin", life))
            live[life] = None
        for pick in ends:
            if not live:
                break
            ended = list(live)[pick % len(live)] if len(live) < 50 else pick % life + 1
            if ended in live:
                del live[ended]
                history.append(("end", ended))
    return history


@given(history=external_histories())
@settings(bounded, max_examples=15)
def test_external_allocations_agree_with_the_model(native: Native, history: list[tuple[str, int]]) -> None:
    """A live one is never evicted; new ones are lost, and counted, only while 4096 others are live."""
    live: dict[int, None] = {}
    dead: set[int] = set()
    lost = 0
    for word, life in history:
        if word == "begin":
            if len(live) < EXTERNAL_SLOTS:
                live[life] = None
            else:
                lost += 1
        elif life in live:
            del live[life]
            dead.add(life)
    box = box_after(native, FOREIGN.replace("{base}", str(FOREIGN_BASE)), history)
    found = {state: {s.nbytes for s in box.storages if s.state == state} for state in ("live", "freed")}
    assert found["live"] == set(live)
    assert found["freed"] <= dead
    assert len(found["freed"]) == min(len(live) + len(dead), EXTERNAL_SLOTS) - len(live)
    assert box.counts["foreign_dropped"] == lost
    for s in box.storages:
        life = s.nbytes
        assert (s.base, s.file, s.file_offset) == (FOREIGN_BASE + life // 2 * 24, f"/data/{life}", life)
        assert s.older == bool(life % 2)
    assert len(box.storages) == len({s.nbytes for s in box.storages})


def test_end_of_a_life_whose_slot_was_taken_again_is_ignored(native: Native) -> None:
    """A number is valid for one lifetime: ending it twice does not end the later one in the same slot."""
    history = [("begin", 1), *[step for n in range(2, 4097) for step in (("begin", n),)], ("end", 1), ("begin", 5000)]
    box = box_after(native, FOREIGN.replace("{base}", str(FOREIGN_BASE)), [*history, ("end", 1)])
    assert {s.nbytes for s in box.storages if s.state == "live"} == {*range(2, 4097), 5000}
    assert box.counts["foreign_dropped"] == 0


def test_long_name_of_a_file_keeps_its_end(native: Native) -> None:
    """Of a path that does not fit, the end is kept, and the cut is marked."""
    code = FOREIGN.replace("{base}", "0")
    path = "/" + "x" * 200 + "/shard-17.bin"
    code += f"""
core.pytracer_external_allocated(ctypes.byref(Birth(0x600000000000, 64, 1, 0, {path!r}.encode(), 17, 0, 0, 0)))
"""
    (storage,) = box_after(native, code, []).storages
    assert storage.origin == "MAPPED_FILE"
    assert storage.file == "..." + path[-159:]


def test_forked_child_inherits_external_allocations(native: Native, tmp_path: Path) -> None:
    """The child's table has what was live at the fork, and its own ends; the parent's does not change."""
    code = with_history(native, FOREIGN.replace("{base}", str(FOREIGN_BASE)), [("begin", 2), ("begin", 4)])
    code += """
pid = os.fork()
if pid == 0:
    core.pytracer_external_freed(U64(numbers[2]), nobody)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    shutil.rmtree(native.run, ignore_errors=True)
    done = native.child(code)
    assert done.status == 0, done.stderr
    parent, child = done.boxes
    assert {s.nbytes: s.state for s in parent.storages} == {2: "live", 4: "live"}
    assert {s.nbytes: s.state for s in child.storages} == {2: "freed", 4: "live"}
