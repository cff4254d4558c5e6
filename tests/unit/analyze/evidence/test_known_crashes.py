"""Each known crash is recognised by all of its facts together, and no other crash is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytracer.analyze import describing
from pytracer.analyze.engine import build_report, job_view
from pytracer.analyze.evidence.known_crashes import KnownCrash, known_crash
from pytracer.analyze.known.registry import FOLDER, Entry, Facts, entries, read_entry
from pytracer.analyze.known.versions import in_range
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job
from pytracer.report.job import Confidence
from tests.golden.reports import GOLDEN, unpacked
from tests.support import scenarios as s
from tests.support.known_crashes import SIGNALS, Part, parts, process_with, view_of
from tests.support.synth import Box

ENTRIES = entries()
RAISED = [entry for entry in ENTRIES if entry.facts.exception is not None and entry.facts.signal is None]
FACTS = [(entry, part) for entry in ENTRIES for part in parts(entry.facts)]
BY_ID = {entry.id: entry for entry in ENTRIES}


def _id(value: Entry | Part) -> str:
    return value.id if isinstance(value, Entry) else "-".join(str(part) for part in value if part is not None)


def named(job: Job) -> list[str]:
    """The known crashes that a report would name."""
    found = [known_crash(view) for view in job_view(job, RunClock(job)).views]
    return [known.id for known in found if known is not None]


# The entries


def test_there_are_enough_entries() -> None:
    """A registry, not a sample."""
    assert len(ENTRIES) >= 40


@pytest.mark.parametrize("entry", ENTRIES, ids=_id)
def test_entry_is_whole(entry: Entry) -> None:
    """Named as its file, with a source, complete sentences, and facts more specific than a signal."""
    assert (FOLDER / f"{entry.id}.toml").exists()
    assert entry.sources and entry.classes and entry.advice.endswith(".")
    assert not entry.says.endswith(".") and not entry.what.endswith(".")
    assert list(parts(entry.facts)) not in ([], [Part("signal")])
    assert entry.confidence in ("certain", "likely", "possible")
    for wanted in (entry.facts.torch, entry.facts.python_version, entry.facts.cuda):
        assert wanted is None or in_range("2.0", wanted) in (True, False)


def test_key_that_no_entry_has_is_refused(tmp_path: Path) -> None:
    """A misspelt fact would never be checked."""
    path = tmp_path / "wrong.toml"
    text = (FOLDER / "fork-after-cuda.toml").read_text(encoding="utf-8")
    path.write_text(text + "\n[facts.expection]\nmessage = 'x'\n", encoding="utf-8")
    with pytest.raises(msgspec.ValidationError, match="expection"):
        read_entry(path)


# What is recognised


@pytest.mark.parametrize("entry", ENTRIES, ids=_id)
def test_all_facts_together_are_the_crash(entry: Entry, run: Path) -> None:
    """With the confidence of the entry."""
    known = known_crash(view_of(process_with(entry, run)))
    assert known is not None
    assert (known.id, known.confidence) == (entry.id, entry.confidence)


@pytest.mark.parametrize("entry", ENTRIES, ids=_id)
def test_report_says_what_is_known_and_what_to_do(entry: Entry, run: Path) -> None:
    """Whatever rule explains the death: in its own class."""
    verdict = build_report(process_with(entry, run)).verdict
    assert verdict is not None
    assert verdict.class_ in entry.classes
    assert entry.advice in (verdict.advice or "")
    assert any(entry.says in line for line in verdict.evidence or [])


@pytest.mark.parametrize(("entry", "part"), FACTS, ids=_id)
def test_without_one_fact_it_is_not_that_crash(entry: Entry, part: Part, run: Path) -> None:
    """Each fact is required."""
    known = known_crash(view_of(process_with(entry, run, without=part)))
    assert known is None or known.id != entry.id


def test_version_that_is_not_known_leaves_a_doubt(run: Path) -> None:
    """A crash while torch is being loaded comes before its version is recorded."""
    entry = BY_ID["aarch64-lse-atomics"]
    unknown = msgspec.structs.replace(entry, example=msgspec.structs.replace(entry.example, torch=None))
    known = known_crash(view_of(process_with(unknown, run)))
    assert known is not None and known.confidence == "likely"


def test_mere_possibility_does_not_replace_the_advice_of_the_rule(run: Path) -> None:
    """It is added to it."""
    entry = BY_ID["gloo-loopback-address"]
    verdict = build_report(process_with(entry, run)).verdict
    assert verdict is not None and verdict.advice is not None
    assert verdict.advice.endswith(entry.advice) and verdict.advice != entry.advice


@pytest.mark.parametrize(
    ("confidence", "how", "is_shown"),
    [
        ("likely", {"explained": True, "names_cause": True}, False),
        ("possible", {"explained": True, "names_cause": True}, False),
        ("certain", {"explained": True, "names_cause": True}, True),  # it is that crash, whatever else is known
        ("likely", {"explained": True}, True),  # the headline takes what is known
        ("likely", {}, True),
    ],
)
def test_resemblance_is_left_out_where_recorded_facts_explain_the_death(
    confidence: Confidence, how: dict[str, Any], is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownCrash("x", ("python-exception",), confidence, "it may be that", "looks like a/b#1: that", "Do that.")
    monkeypatch.setattr(describing, "known_crash", lambda view, verdict_class: known)
    view: Any = None
    words = Description("It raised ValueError.", [], "Do this.", **how)
    found = describing._recognized(Judgement("python-exception", "certain", (view,), None), words)
    assert (known.evidence in found.evidence) == is_shown
    assert is_shown or found == words


# What is not


@pytest.mark.parametrize("entry", RAISED, ids=_id)
def test_message_without_the_words_that_count_is_not_that_crash(entry: Entry, run: Path) -> None:
    """The rest of a real message."""
    assert entry.facts.exception is not None
    rest = re.sub(entry.facts.exception.message, "", entry.example.message or "")
    assert entry.id not in named(s.load(run, Box(pid=101, ppid=99).at(500).exception("RuntimeError", rest).exit(1)))


@pytest.mark.parametrize("entry", RAISED, ids=_id)
def test_exception_that_was_survived_is_nothing_known(entry: Entry, run: Path) -> None:
    """The process continued and exited normally."""
    box = Box(pid=101, ppid=99).at(500).exception("RuntimeError", entry.example.message or "").at(900).exit(0)
    assert named(s.load(run, box)) == []


MESSAGES = [
    "undefined symbol: PyUnicode_AsUTF8",
    "/opt/lib/libfoo.so: undefined symbol: _ZN4absl5MutexD1Ev",
    "undefined symbol: ncclFoo",
    "libGL.so.1: cannot open shared object file: No such file or directory",
    "libmylib.so: cannot open shared object file: No such file or directory",
    "version `OPENSSL_3.0.0' not found",
    "No module named 'numpy'",
    "numpy boolean subtract, the `-` operator, is not supported",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: misaligned address",
    "CUDA error: unspecified launch failure",
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "out of resource: threads, Required: 2048, Hardware limit: 1024",
    "Connection closed by peer [127.0.0.1]:51234",
    "Socket Timeout",
    "The server socket has failed to listen on any local network address. [::]:80 (errno: 13 - Permission denied).",
    "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, remote=[10.0.0.2]:4711",
    "NCCL error: internal error - please report this issue to the NCCL developers",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "DataLoader worker (pid 17) is killed by signal: Killed.",
    "DataLoader worker (pid 17) is killed by signal: Segmentation fault.",
    "DataLoader worker (pid(s) 17, 18) exited unexpectedly",
    "[Errno 24] Too many open files: 'data/17.png'",
    "[Errno 28] No space left on device: '/checkpoints/last.pt'",
    "unable to write to file </mnt/data/x.bin>: No space left on device (28)",
    "unable to open file </torch_1_2_0> in read-only mode: No such file or directory (2)",
    "Trying to resize storage that is not resizable",
    "PytorchStreamReader failed locating file data.pkl: file not found",
    "PytorchStreamReader failed reading file data/0: file read failed",
    "invalid load key, '<'.",
    "Parent directory checkpoints does not exist.",
    "size mismatch, got input (2), mat (2x3), vec (4)",
    "mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and output[0] has a shape of torch.Size([3]).",
    'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.bias". ',
    'Error(s) in loading state_dict for N:\n\tMissing key(s) in state_dict: "module.a". \n\tUnexpected "module.b". ',
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "batch1 must be a 3D tensor",
    "invalid load key, '\\x1f'.",
    "grad can be implicitly created only for scalar outputs",
    "a leaf Variable that requires grad is being used in an in-place operation.",
    "Output 0 of SliceBackward0 is a view and is being modified inplace.",
    "Can't pickle the world: no process was started",
    "daemon threads are not supported in this subinterpreter",
    "index 10 is out of bounds for dimension 0 with size 10",
    "bounds [0, 1] of the target are out of range",
    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    "Expected 4D input (got 2D input)",
    "Group <ProcessGroup> is not registered, please create group with torch.distributed.new_group API",
    "clang: error: unsupported option '-fopenmp'",
    "[Errno 22] Invalid argument",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 800 bytes. Error code 12",
    "Expected to have finished reduction in the prior iteration before starting a new one.",
    "Address already in use",
    "operator mylib::nms does not exist",
]


@pytest.mark.parametrize("text", MESSAGES)
def test_message_that_looks_alike_is_nothing_known(text: str, run: Path) -> None:
    """Similar messages from the same libraries."""
    assert named(s.load(run, Box(pid=101, ppid=99).at(500).exception("RuntimeError", text).exit(1))) == []


FUNCTIONS = [
    "read_sum(float const*, unsigned long)",
    "at::native::batch_norm_cpu_update_stats",
    "_PyEval_EvalFrameDefault",
    "gloo::transport::tcp::Pair::read()",
    "c10d::Logger::set_construction_data_and_log",
    "c10d::Reducer::finalize_backward()",
    "c10::ThreadPool::main_loop(unsigned long)",
    "pthread_exit",
    "take_gil",
    "std::thread::~thread()",
    "PyType_GenericAlloc",
    "mz_crc32",
    "PyBytes_FromStringAndSize",
    "_mi_options_init",
    "mi_free",
]


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_that_some_known_crashes_have_is_not_enough(function: str, signal: str, run: Path) -> None:
    """On an otherwise ordinary stack."""
    facts = Facts(signal=signal, innermost=function, stack=(("libtorch_cpu",), ("main_loop_of_mine",)))
    entry = Entry("x", "x", (), "certain", "x", "x", "x", (), facts)
    assert named(process_with(entry, run)) == []


ARCHIVES = sorted(GOLDEN.glob("*/*.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name[:-7])
def test_recording_of_another_crash_is_nothing_known(archive: Path, tmp_path: Path) -> None:
    """Real recordings of crashes of our test programs."""
    assert named(load_job(unpacked(archive, tmp_path))) == []


def test_there_are_enough_negative_controls() -> None:
    """None of them is named."""
    alike = len(MESSAGES) + len(FUNCTIONS) * len(SIGNALS) + 2 * len(RAISED) + len(ARCHIVES)
    assert alike >= 200
