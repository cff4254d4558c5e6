"""Released memory: the reason, by frames, layouts and collectives; and what must not be concluded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import NamedTensor, NativeFrame, StorageHit
from pytracer.decode.types.storage_table import StorageTable
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.synth import WALL, Box
from tests.support.synth_threads import OtherThread

BASE = 0x7F50_0000_0000
BYTES = 64 << 20
LIBRARY = ("parse", "/venv/lib/python3.11/site-packages/other/core.py", 3)


def judged(run: Path, box: Box, addr: int = BASE + 64, **crash: Any) -> Report:
    box.at(500).crash(addr=addr, native=s.NATIVE[:1], python=s.BACKWARD[-2:-1], **crash)
    return build_report(s.load(run, box))


def told(report: Report) -> tuple[str | None, str, str]:
    """Id of the finding that is the verdict, its summary, its evidence."""
    verdict = report.verdict
    assert verdict is not None
    first = (report.findings or [])[0]
    return first.id, verdict.summary or "", "\n".join(verdict.evidence or [])


def ids(report: Report) -> set[str | None]:
    return {item.id for item in report.findings or []}


@pytest.mark.parametrize(
    ("function", "file", "rule", "says"),
    [
        ("Optimizer.zero_grad", "optim/optimizer.py", "stale-grad", "which was a gradient that zero_grad() dropped"),
        ("zero_grad", "optim/optimizer.py", "stale-grad", "which was a gradient that zero_grad() dropped"),
        ("Module.zero_grad", "nn/modules/module.py", "stale-grad", "which was a gradient that zero_grad() dropped"),
        ("_free_storage", "distributed/utils.py", "use-after-free", "which FSDP released when it resharded the unit"),
        ("free_storage", "distributed/fsdp/_fully_shard/_fsdp_param.py", "use-after-free", "which FSDP released when"),
        ("Module._apply", "nn/modules/module.py", "storage-swapped", "which Module.to() or its like replaced"),
        ("swap_tensors", "utils/__init__.py", "storage-swapped", "which swap_tensors() exchanged"),
    ],
)
@pytest.mark.parametrize("large", [True, False])
def test_functions_of_torch_betray_why_memory_went(
    tmp_path: Path, function: str, file: str, rule: str, says: str, large: bool
) -> None:
    """As the innermost frame: with the user's line beside it for large storages, without it for small ones."""
    inner = (function, f"{s.TORCH}/{file}", 300)
    box = Box(pid=101).alloc(BASE, BYTES)
    report = judged(tmp_path, box.later(1).free(BASE, box.site(inner, ("train", s.SCRIPT, 80)) if large else inner))
    found, summary, _ = told(report)
    assert found == rule and says in summary
    assert ids(report) & {"use-after-free", "stale-grad", "storage-swapped"} == {rule}


EITHER = "share_memory_() or pickling for another process moved into shared memory"
POOL = ("_handle_tasks", "/usr/lib/python3.11/multiprocessing/pool.py", 540)


@pytest.mark.parametrize(
    ("caller", "says", "advises"),
    [
        (("dump", "/usr/lib/python3.11/multiprocessing/reduction.py", 60), "pickled for another process", "after that"),
        (POOL, "pickled for another process", "after that"),
        ("table.share_memory_()", "share_memory_() moved into shared memory", "after every change of the tensor"),
        ("list(map(Tensor.share_memory_, tables))", "share_memory_() moved into", "after every change of the tensor"),
        ("pickler.dump(table)", EITHER, "after every change of the tensor"),
        (("train", s.SCRIPT, 80), EITHER, "after every change of the tensor"),  # its text is not there
        (LIBRARY, EITHER, "after every change of the tensor"),
        (None, EITHER, "after every change of the tensor"),
    ],
    ids=["pickler", "pool", "line", "method", "own pickler", "no source", "library", "small storage"],
)
def test_memory_that_moved_into_shared_memory(tmp_path: Path, caller: Any, says: str, advises: str) -> None:
    """share_memory_() and the pickler of multiprocessing move it by the same function."""
    if isinstance(caller, str):
        script = tmp_path / "train.py"
        script.write_text(f"{caller}\n", encoding="utf-8")
        os.utime(script, (0, 0))  # before the recorded process began
        caller = ("train", str(script), 1)
    box = Box(pid=101).alloc(BASE, BYTES).later(1)
    box.free(BASE, box.site(("UntypedStorage._share_fd_cpu_", f"{s.TORCH}/storage.py", 527), caller))
    run = tmp_path / "run"
    run.mkdir()
    report = judged(run, box)
    found, summary, _ = told(report)
    assert found == "storage-swapped" and says in summary
    assert advises in (report.verdict.advice or "" if report.verdict else "")


def test_function_of_the_same_name_elsewhere_betrays_nothing(tmp_path: Path) -> None:
    """The look-alike: the user's own zero_grad()."""
    box = Box(pid=101).alloc(BASE, BYTES).later(1).free(BASE, ("zero_grad", s.SCRIPT, 9))
    found, summary, _ = told(judged(tmp_path, box))
    assert found == "use-after-free" and "which was released at train.py:9 in zero_grad" in summary


WEIGHT: dict[str, Any] = {"fqn": "0.weight", "numel": 1 << 24, "shard_numel": 1 << 23, "itemsize": 4, "addr": 4096}


@pytest.mark.parametrize("fsdp", [True, False])
def test_memory_that_was_a_sharded_parameter_before_is_likely_only(tmp_path: Path, fsdp: bool) -> None:
    """The pointer may be the parameter's; what was no parameter of FSDP's leaves the last owner certain."""
    box = Box(pid=101).unit("0", [WEIGHT]).alloc(BASE, BYTES).later(1)
    if fsdp:
        box.scoped(1, box.scope("FSDP::all_gather_copy_out (0)"), [(BASE, BYTES)]).later(1)
    box.free(BASE, ("free_storage", f"{s.TORCH}/distributed/fsdp/_fully_shard/_fsdp_param.py", 300)).later(1)
    box.alloc(BASE, BYTES, ("batch", s.SCRIPT, 70)).later(1).free(BASE, ("train", s.SCRIPT, 80))
    report = judged(tmp_path, box)
    verdict, first = report.verdict, (report.findings or [])[0]
    assert verdict is not None and first.id == "use-after-free" and "at train.py:80 in train" in (first.summary or "")
    assert verdict.confidence == ("likely" if fsdp else "certain")
    assert ("reshard_after_forward" in (verdict.advice or "")) == fsdp
    assert any("unsharded parameter 0.weight of FSDP unit 0" in item for item in first.missing or []) == fsdp


LINES = [
    ("weights.set_(other)", "storage-swapped", "set_() replaced"),
    ("weights.untyped_storage().resize_(0)", "storage-swapped", "resize_() replaced or released"),
    ("p.data = p.data.half()", "storage-swapped", "an assignment to .data replaced"),
    ("p.grad = None", "stale-grad", ".grad was set to None"),
    ("torch.utils.swap_tensors(a, b)", "storage-swapped", "swap_tensors() exchanged"),
    ("if p.data == other:", "use-after-free", "which was released at"),
    ("return p.grad", "use-after-free", "which was released at"),
    ("buffer_set_(other)", "use-after-free", "which was released at"),
    ("del weights", "use-after-free", "which was released at"),
]


@pytest.mark.parametrize(("line", "rule", "says"), LINES)
def test_text_of_the_line_betrays_operators_without_a_frame(tmp_path: Path, line: str, rule: str, says: str) -> None:
    """It is quoted as evidence; lines that only look alike show where, not why."""
    script = tmp_path / "train.py"
    script.write_text(f"def swap():\n    {line}\n")
    box = Box(pid=101)
    os.utime(script, ns=(box.created_ns + WALL - 1, box.created_ns + WALL - 1))
    found, summary, evidence = told(
        judged(tmp_path / "run", box.alloc(BASE, BYTES).later(1).free(BASE, ("swap", str(script), 2)))
    )
    assert found == rule and says in summary
    assert (f"train.py:2 in swap reads: {line}" in evidence) == (rule != "use-after-free")


def test_line_of_a_file_that_changed_since_is_not_quoted(tmp_path: Path) -> None:
    """The source may have been different then."""
    script = tmp_path / "train.py"
    script.write_text("def swap():\n    weights.set_(other)\n")
    box = Box(pid=101).alloc(BASE, BYTES).later(1).free(BASE, ("swap", str(script), 2))
    found, _, evidence = told(judged(tmp_path / "run", box))
    assert found == "use-after-free" and "reads:" not in evidence


def test_line_of_a_library_is_not_interpreted(tmp_path: Path) -> None:
    """Its source does not mention this tensor; the frame is reported, not a reason."""
    box = Box(pid=101).alloc(BASE, BYTES).later(1).free(BASE, LIBRARY)
    assert told(judged(tmp_path, box))[0] == "use-after-free"


def test_memory_released_before_its_collective_completed(tmp_path: Path) -> None:
    """The collective is the reason, whatever line released the memory."""
    box = Box(pid=101, rank=0).alloc(BASE, BYTES).later(5)
    box.collective("gloo:all_reduce", addr=BASE, nbytes=4096, by=box.code("reduce", s.SCRIPT, 20), flags=1).later(5)
    report = judged(tmp_path, box.free(BASE, ("reduce", s.SCRIPT, 22)))
    found, summary, evidence = told(report)
    assert found == "use-after-free" and "which was released before all_reduce on it had completed" in summary
    assert "all_reduce (sequence number 1), called at train.py:20 in reduce, worked on that storage" in evidence
    assert report.verdict is not None and "Call wait() on the work of all_reduce" in (report.verdict.advice or "")


@pytest.mark.parametrize("case", ["completed", "another life"])
def test_collective_that_had_nothing_to_do_with_it_is_not_blamed(tmp_path: Path, case: str) -> None:
    """The look-alikes: it had completed; or it used the earlier storage there."""
    box = Box(pid=101, rank=0).alloc(BASE, BYTES).later(5)
    box.collective("gloo:all_reduce", addr=BASE, nbytes=4096, state="completed" if case == "completed" else "started")
    if case == "another life":
        box.later(5).free(BASE).later(5).alloc(BASE, BYTES)
    assert "all_reduce on it" not in told(judged(tmp_path, box.later(5).free(BASE, ("drop", s.SCRIPT, 5))))[1]


@needs_capstone
def test_older_life_is_told_by_the_base_register(tmp_path: Path) -> None:
    """The memory had another owner since; the pointer that was used begins at the older storage."""
    box = Box(pid=101).freed(BASE, BYTES, None, ("first", s.SCRIPT, 5)).later(1)
    box.freed(BASE + (32 << 20), 4096, None, ("second", s.SCRIPT, 6))
    code, registers = bytes.fromhex("f30f1004b7"), {"rdi": BASE, "rsi": 8 << 20}  # movss xmm0, [rdi + rsi*4]
    report = judged(tmp_path, box, BASE + (32 << 20), code_bytes=code, registers=registers)
    assert "train.py:5 in first" in told(report)[1]
    report = judged(tmp_path, box, BASE + (32 << 20))
    assert "train.py:6 in second" in told(report)[1]


@pytest.mark.parametrize(
    ("role", "name", "rule", "says"),
    [
        (
            "parameter",
            "parameter w",
            "storage-swapped",
            "which was parameter w until the tensor was given other memory",
        ),
        ("gradient", "gradient of w", "stale-grad", "which was the gradient of w until backward() made a new one"),
    ],
)
@pytest.mark.parametrize("moved", [True, False])
def test_tensor_that_has_other_memory_since_tells_why(
    tmp_path: Path, role: str, name: str, rule: str, says: str, moved: bool
) -> None:
    """Where no line shows it; the look-alike is a name that was recorded nowhere else."""
    box = Box(pid=101).alloc(BASE, BYTES).later(1)
    epoch = box.epoch
    box.later(1).free(BASE, LIBRARY).later(1).alloc(BASE + (1 << 30), BYTES)
    box.at(500).crash(addr=BASE + 64, native=s.NATIVE[:1])
    job = s.load(tmp_path, box)
    then = NamedTensor(name, role, BASE, BASE, BYTES, epoch, earlier=moved)
    now = NamedTensor(name, role, BASE + (1 << 30), BASE + (1 << 30), BYTES, box.epoch, earlier=False)
    snapshot = replace(job.processes[0].snapshot, named={BASE: (then,), now.base: (now,)} if moved else {BASE: (then,)})
    report = build_report(replace(job, processes=(replace(job.processes[0], snapshot=snapshot),)))
    found, summary, _ = told(report)
    assert (found == rule and says in summary) if moved else found == "use-after-free"


@pytest.mark.parametrize("views", [True, False])
def test_gradients_that_were_views_of_a_bucket_are_stale_with_it(tmp_path: Path, views: bool) -> None:
    """gradient_as_bucket_view, known by the gradients' addresses; without it only the bucket is reported."""
    job = s.use_after_free(tmp_path)
    index = next(i for i, item in enumerate(job.processes) if item.rank == 1)
    fact = next(item for item in job.processes[index].snapshot.facts if item.kind == "BUCKETS")
    named = [
        NamedTensor(f"gradient of {fqn}", "gradient", s.BUCKET, s.BUCKET + 64 * i, 64, fact.epoch, earlier=True)
        for i, fqn in enumerate(("w", "b", "c"))
    ]
    snapshot = replace(job.processes[index].snapshot, named={s.BUCKET: tuple(named)} if views else {})
    processes = [replace(p, snapshot=snapshot) if i == index else p for i, p in enumerate(job.processes)]
    found, _, evidence = told(build_report(replace(job, processes=tuple(processes))))
    said = "gradient of w and 2 other gradients lay in that bucket (gradient_as_bucket_view)"
    assert found == "use-after-free" and (said in evidence) == views


def efault(run: Path, state: str, *, freed: bool = True, **crash: Any) -> Report:
    box = Box(pid=101, rank=0).versions(python="3.11.7", torch="2.13.0").alloc(BASE, BYTES).later(5)
    box.collective("gloo:all_reduce", addr=BASE, nbytes=4096, by=box.code("reduce", s.SCRIPT, 20), state=state).later(5)
    if freed:
        box.free(BASE, ("reduce", s.SCRIPT, 22)).later(5)
    box.at(490).cpp_exception("gloo::IoException", "writev [127.0.0.1]:26792: Bad address")
    crash = {"signal": 6, "code": -6, "sender_pid": 101, "native": [(s.LIBC, 0x3300), (s.LIBSTDCXX, 0x4500)], **crash}
    box.at(500).crash(**crash)
    return build_report(s.load(run, box))


@pytest.mark.parametrize("python", [[], [("reduce", s.SCRIPT, 23)]])  # gloo's thread may abort while wait() stands
def test_bad_address_is_explained_by_the_collective_whose_memory_went(
    tmp_path: Path, python: list[tuple[str, str, int]]
) -> None:
    """The kernel refused memory; the abort was only its consequence, and where it met the program says nothing."""
    found, summary, evidence = told(efault(tmp_path, "started", python=python))
    assert found == "collective-buffer-freed"
    assert summary == "Rank 0 released memory at train.py:22 in reduce that all_reduce was still working on."
    assert "was freed at train.py:22 in reduce after the call" in evidence
    assert "abort" not in ids(efault(tmp_path / "again", "started"))


@pytest.mark.parametrize(("state", "freed"), [("completed", True), ("started", False)])
def test_bad_address_without_such_a_collective_stays_an_abort(tmp_path: Path, state: str, freed: bool) -> None:
    """The look-alikes: nothing was open, or nothing was freed."""
    assert told(efault(tmp_path, state, freed=freed))[0] == "abort"


def test_live_tensor_without_memory_is_told(tmp_path: Path) -> None:
    """Its owner has unmapped it; the memory map extends beyond it."""
    maps = [(0x5555_0000_0000, 0x5555_0000_1000, "rw-p", 0, "[heap]"), (1 << 46, (1 << 46) + 4096, "rw-p", 0, "")]
    box = Box(pid=101).alloc(BASE, BYTES, ("wrap", s.SCRIPT, 30))
    report = judged(tmp_path, box, mappings=[*maps, (0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")])
    found, summary, _ = told(report)
    assert found == "unmapped-storage" and "memory of a tensor that was made at train.py:30 in wrap" in summary
    assert report.verdict is not None and report.verdict.confidence == "possible"


@pytest.mark.parametrize(
    ("origin", "foreign", "confidence"),
    [
        ("NUMPY", True, "certain"),
        ("BLOB", True, "certain"),
        ("SHARED_MEMORY", True, "likely"),
        ("CPU_ALLOCATOR", False, "possible"),
    ],
)
def test_owner_of_the_memory_decides_how_sure_that_is(
    tmp_path: Path, origin: str, foreign: bool, confidence: str
) -> None:
    """Memory of NumPy or of a library is released by its owner; torch's own is not while its storage is live."""
    box = Box(pid=101).alloc(BASE, BYTES)
    maps = [(0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")]
    job = s.load(tmp_path, box.at(500).crash(addr=BASE + 64, native=s.NATIVE[:1], mappings=maps))
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None
    storage = replace(snapshot.storages[0], origin=origin, foreign=foreign)
    crash = replace(snapshot.crash, hits=(StorageHit("covering", storage),))
    snapshot = replace(snapshot, storages=StorageTable.of(storage), crash=crash)
    report = build_report(replace(job, processes=(replace(job.processes[0], snapshot=snapshot),)))
    assert told(report)[0] == "unmapped-storage"
    assert report.verdict is not None and report.verdict.confidence == confidence


ENGINE = """class Engine:
    def weights(self):
        return torch.from_numpy(as_array(lib.weights(self.handle)))

    def {}(self):
        lib.engine_free({})
"""


@pytest.mark.parametrize(
    ("method", "passed", "origin", "told_of"),
    [
        ("__del__", "self.handle", "NUMPY", True),
        ("close", "self.handle", "NUMPY", True),
        ("other", "self.handle", "NUMPY", False),
        ("__del__", "handle", "NUMPY", False),
        ("__del__", "self.handle", "CPU_ALLOCATOR", False),
    ],
    ids=["__del__", "close", "another method", "not its own", "memory of torch"],
)
def test_the_object_that_made_a_tensor_and_frees_its_memory_is_to_be_kept(
    tmp_path: Path, method: str, passed: str, origin: str, told_of: bool
) -> None:
    """The tensor refers to the array, not to the object of the program behind it."""
    file = tmp_path / "engine.py"
    file.write_text(ENGINE.format(method, passed), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    box = Box(pid=101).alloc(BASE, BYTES, ("Engine.weights", str(file), 3))
    maps = [(0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")]
    job = s.load(tmp_path, box.at(500).crash(addr=BASE + 64, native=s.NATIVE[:1], mappings=maps))
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None
    storage = replace(snapshot.storages[0], origin=origin, foreign=origin == "NUMPY")
    crash = replace(snapshot.crash, hits=(StorageHit("covering", storage),))
    snapshot = replace(snapshot, storages=StorageTable.of(storage), crash=crash)
    report = build_report(replace(job, processes=(replace(job.processes[0], snapshot=snapshot),)))
    assert told(report)[0] == "unmapped-storage"
    advice = (report.verdict.advice if report.verdict is not None else None) or ""
    assert advice.startswith("Keep the Engine that made it for as long as the tensor") == told_of
    assert (f"Engine.{method}() (engine.py:6: `lib.engine_free(self.handle)`) may have freed" in advice) == told_of


def borrowed(tmp_path: Path, source: str, line: int, base: int = BASE, low: bool = False) -> Report:
    """A tensor of memory of others, made at a line of the program, whose memory is gone."""
    file = tmp_path / "lends.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    box = Box(pid=101).alloc(base, BYTES, ("make", str(file), line))
    maps = [(0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")]
    maps += [(0x40_0000, 0x41_0000, "r-xp", 0, "/usr/bin/python3")] if low else []
    job = s.load(tmp_path, box.at(500).crash(addr=base + 64, native=s.NATIVE[:1], mappings=maps))
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None
    storage = replace(snapshot.storages[0], origin="NUMPY", foreign=True)
    crash = replace(snapshot.crash, hits=(StorageHit("covering", storage),))
    snapshot = replace(snapshot, storages=StorageTable.of(storage), crash=crash)
    return build_report(replace(job, processes=(replace(job.processes[0], snapshot=snapshot),)))


LENT = "def make(replay):\n    held = replay.view()\n    {}\n    return held\n"
ARRAY = """class Rows:
    def make(self):
        self.tensor = torch.from_numpy(self.rows)

    def add(self):
        {}
"""


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        (
            LENT.format("replay.push(1)"),
            2,
            "`replay.push()` at lends.py:3 may have moved or released that memory since",
        ),
        (LENT.format("other.push(1)"), 2, "or keep `replay` as it was then"),
        (ARRAY.format("self.rows.resize(9, refcheck=False)"), 3, "`self.rows.resize()` at lends.py:6 may have moved"),
        (ARRAY.format("self.rows.sum()"), 3, None),
        (ARRAY.format("self.other.resize(9)"), 3, None),
    ],
)
def test_what_may_have_moved_the_memory_is_named(source: str, line: int, says: str | None, tmp_path: Path) -> None:
    report = borrowed(tmp_path, source, line)
    said = (report.verdict.advice if report.verdict is not None else None) or ""
    assert said.startswith("Call clone() where the tensor is made, at lends.py") == (says is not None)
    assert says is None or says in said


@pytest.mark.parametrize(
    ("base", "low", "cut"), [(0x3EFC_B000, False, True), (0x3EFC_B000, True, False), (BASE, False, False)]
)
def test_tensor_of_an_address_of_32_bits_was_made_of_half_an_address(
    base: int, low: bool, cut: bool, tmp_path: Path
) -> None:
    """Not in a program that is loaded below 4 GiB itself."""
    report = borrowed(tmp_path, "def make(p):\n    return torch.frombuffer(p)\n", 2, base, low)
    verdict = report.verdict
    assert verdict is not None and verdict.class_ == ("wild-pointer" if cut else "use-after-free")
    assert ((verdict.advice or "").startswith("Set `restype = ctypes.c_void_p`")) == cut
    assert ("the upper half was lost" in told(report)[1]) == cut


OF_C = """import ctypes
lib = ctypes.CDLL("libnoise.so")
{declared}
def fill(n):
    at = {called}
    rows = np.ctypeslib.as_array(ctypes.cast(at, KIND), shape=(lib.count(n),))
    return torch.from_numpy(rows)
"""


@pytest.mark.parametrize(
    ("declared", "called", "named"),
    [
        ("lib.noise.argtypes = [ctypes.c_long]", "lib.noise(n)", True),
        ("lib.count.restype = ctypes.c_long", "lib.noise(n)", True),
        ("setattr(lib.count, 'restype', kind)", "lib.noise(n)", True),
        ("f = lib.count; f.restype = kind", "lib.noise(n)", True),
        ("lib.noise.restype = ctypes.c_void_p", "lib.noise(n)", False),
        ("for f in all_of(lib): f.restype = ctypes.c_void_p", "lib.noise(n)", False),
        ("for name in NAMES: getattr(lib, name).restype = kind", "lib.noise(n)", False),
        ("setattr(lib.noise, 'restype', kind)", "lib.noise(n)", False),
        ("f = lib['noise']; f.restype = kind", "lib.noise(n)", False),
        ("", "place_of(n)", False),
        ("", "store.noise(n)", False),
    ],
)
def test_memory_of_half_an_address_names_what_returned_it_without_restype(
    declared: str, called: str, named: bool, tmp_path: Path
) -> None:
    """Not where a line may set it: of a function that is not known, or by another name."""
    report = borrowed(tmp_path, OF_C.format(declared=declared, called=called), 7, 0x3EFC_B000)
    only = ", lends.py:3 sets only its argtypes" * ("argtypes" in declared)
    said = (
        "it was made of 0x3efcb000, the lower 32 bits of the address that `lib.noise()` returned at lends.py:5: its "
        f"restype is not set{only}."
    )
    verdict = report.verdict
    assert verdict is not None and (said in told(report)[1]) == named
    assert ((verdict.advice or "").startswith("Set `lib.noise.restype = ctypes.c_void_p` before lends.py:5")) == named


@pytest.mark.parametrize(
    ("declared", "why", "repair"),
    [
        (
            "other = ctypes.CDLL('libnoise.so')\nother.noise.restype = kind",
            "lends.py:4 sets the restype of another object, which lends.py:3 loads",
            "Call it on the library that lends.py:3 (",
        ),
        (
            "lib['noise'].restype = kind",
            "lends.py:3 sets the restype of `lib['noise']`, a new object each time",
            "Write `lib.noise.restype = ctypes.c_void_p` in place of `lib['noise'].restype = ...` at lends.py:3",
        ),
        (
            "other = ctypes.CDLL('libother.so')\nother.noise.restype = kind",
            "lends.py:4 sets the restype of another object, which lends.py:3 loads",
            "Set `lib.noise.restype = ctypes.c_void_p` before lends.py:6 (",
        ),
        ("lib.noise.restype = kind", None, None),
        ("FUNCTIONS = {'noise': lib.noise}; FUNCTIONS['noise'].restype = kind", None, None),
        ("other = lib\nother.noise.restype = kind", None, None),
    ],
)
def test_a_restype_of_another_object_is_none_of_the_function_that_was_called(
    declared: str, why: str | None, repair: str | None, tmp_path: Path
) -> None:
    """Each CDLL() has functions of its own, and each `lib["noise"]` is another one."""
    line = 7 + declared.count("\n")
    report = borrowed(tmp_path, OF_C.format(declared=declared, called="lib.noise(n)"), line, 0x3EFC_B000)
    verdict = report.verdict
    assert verdict is not None and ("returned at" in told(report)[1]) == (why is not None)
    if why is not None and repair is not None:
        assert why in told(report)[1] and (verdict.advice or "").startswith(repair)


def test_a_restype_that_another_file_sets_is_set(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text("def declare(lib):\n    lib.noise.restype = kind\n", encoding="utf-8")
    os.utime(tmp_path / "kinds.py", (0, 0))
    report = borrowed(tmp_path, OF_C.format(declared="import kinds", called="lib.noise(n)"), 7, 0x3EFC_B000)
    assert "returned at" not in told(report)[1]


@pytest.mark.parametrize(
    ("maps", "found", "confidence"),
    [
        ([(BASE - 4096, BASE + 4096, "rw-p", 0, "")], "oversized-tensor", "likely"),
        (
            [(BASE, BASE + 4096, "rw-p", 0, ""), (BASE + 4096, BASE + 8192, "---p", 0, "")],
            "oversized-tensor",
            "likely",
        ),
        ([(BASE - 4096, BASE, "rw-p", 0, "")], "unmapped-storage", "certain"),
        ([(BASE, BASE + BYTES, "---p", 0, "")], "unmapped-storage", "likely"),
        (
            [
                (BASE, BASE + 4096, "rw-p", 0, ""),
                (BASE + 4096, BASE + 8192, "---p", 0, ""),
                (BASE + 8192, BASE + BYTES, "rw-p", 0, ""),
            ],
            "other-death",
            "unknown",
        ),
        (
            [(BASE, BASE + 4096, "rw-p", 0, ""), (BASE + 4096, BASE + BYTES, "---p", 0, "")],
            "unmapped-storage",
            "likely",
        ),
        (
            [
                (BASE, BASE + 4096, "rw-p", 0, ""),
                (BASE + 4096, BASE + 8192, "---p", 0, ""),
                (BASE + 8192, BASE + BYTES, "rw-s", 0, "/data/other.bin"),
            ],
            "unmapped-storage",
            "likely",
        ),
    ],
    ids=["its end is missing", "its end is refused", "all is missing", "all is refused", "a page in its middle is"]
    + ["a thread's heap took its place", "several things did"],
)
def test_tensor_whose_beginning_is_there_claims_too_much(
    tmp_path: Path, maps: list[tuple[int, int, str, int, str]], found: str, confidence: str
) -> None:
    """Memory is unmapped as a whole; a page in the middle was protected by somebody."""
    code = 2 if any(item[0] <= BASE + 4096 < item[1] for item in maps) else 1
    stack = (0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")
    box = Box(pid=101).alloc(BASE, BYTES).at(500)
    job = s.load(tmp_path, box.crash(addr=BASE + 4096, code=code, native=s.NATIVE[:1], mappings=[*maps, stack]))
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None
    storage = replace(snapshot.storages[0], origin="BLOB", foreign=True)
    crash = replace(snapshot.crash, hits=(StorageHit("covering", storage),))
    snapshot = replace(snapshot, storages=StorageTable.of(storage), crash=crash)
    report = build_report(replace(job, processes=(replace(job.processes[0], snapshot=snapshot),)))
    assert report.verdict is not None
    assert (told(report)[0], report.verdict.confidence) == (found, confidence)


@pytest.mark.parametrize("case", ["cut off", "protected"])
def test_live_tensor_is_not_said_to_be_unmapped_without_proof(tmp_path: Path, case: str) -> None:
    """The look-alikes: a memory map that ends before, and memory that is mapped but protected."""
    maps = [(0x5555_0000_0000, 0x5555_0000_1000, "rw-p", 0, "[heap]")]
    if case == "protected":
        maps += [(BASE, BASE + BYTES, "---p", 0, ""), (0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")]
    assert "unmapped-storage" not in ids(judged(tmp_path, Box(pid=101).alloc(BASE, BYTES), mappings=maps))


@pytest.mark.parametrize(("tid", "other"), [(102, True), (None, False)])
def test_memory_that_another_thread_resized_is_not_the_users_own_fault(
    tid: int | None, other: bool, run: Path, tmp_path: Path
) -> None:
    """The look-alike: the thread that used it had resized it before."""
    script = tmp_path / "own.py"
    script.write_text("buffer.untyped_storage().resize_(0)\n", encoding="utf-8")
    box = Box(pid=101).alloc(BASE, BYTES, ("make", s.SCRIPT, 5))
    box.free(BASE, ("refill", str(script), 1), tid=tid)
    os.utime(script, (1, 1))
    _, summary, _ = told(report := judged(run, box))
    assert ("on another thread at own.py:1 in refill" in summary) == other
    assert report.verdict is not None
    assert ("wait for" in (report.verdict.advice or "")) == other


@pytest.mark.parametrize(("tid", "other"), [(102, True), (101, False)])
def test_worker_of_openmp_uses_memory_for_the_thread_that_opened_its_region(
    tid: int, other: bool, run: Path, tmp_path: Path
) -> None:
    """Who crashed runs no Python. The look-alike: the opener itself had resized the storage."""
    script = tmp_path / "own.py"
    script.write_text("buffer.untyped_storage().resize_(0)\n", encoding="utf-8")
    box = Box(pid=101).alloc(BASE, BYTES, ("make", s.SCRIPT, 5)).free(BASE, ("refill", str(script), 1), tid=tid)
    os.utime(script, (1, 1))
    at: dict[str, Any] = {"addr": BASE + 64, "native": s.NATIVE[:1], "tid": 600, "python_matched": False}
    box.at(500).crash(**at, threads=[OtherThread(101, pthread=101)], other_python={101: [("step", s.SCRIPT, 41)]})
    job = s.load(run, box)
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None
    region, worker, gomp = "at::internal::invoke_parallel<kernel>", "gomp_thread_start", f"{s.TORCH}/lib/libgomp.so.1"
    opener = (_frame(region, s.TORCH_CPU), _frame("GOMP_parallel", gomp), _frame("at::native::mean", s.TORCH_CPU))
    threads = tuple(replace(item, native_stack=opener, state="done") for item in snapshot.crash.threads)
    own = (_frame(region, s.TORCH_CPU), _frame(worker, gomp))
    crash = replace(snapshot.crash, python_stack=(), native_stack=own, threads=threads)
    report = build_report(replace(job, processes=(replace(job.processes[0], snapshot=replace(snapshot, crash=crash)),)))
    assert ("on another thread at own.py:1 in refill" in told(report)[1]) == other


def _frame(function: str, image: str) -> NativeFrame:
    return NativeFrame(1, image, 1, None, "exact", function)
