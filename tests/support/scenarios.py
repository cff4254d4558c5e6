"""Whole runs, built by hand with `synth.py` and decoded: the input of tests of rules and views.

Each function writes recordings below a directory and returns the `Job`. Times are ms after the recordings were created.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job, NativeFrame
from tests.support.synth import Box, write_run

SCRIPT = "/home/user/job/train.py"
TORCH = "/venv/lib/python3.11/site-packages/torch"
DDP = f"{TORCH}/nn/parallel/distributed.py"
VICTIM = "/home/user/job/libvictim.so"
PYTHON = "/usr/bin/python3.11"
TORCH_CPU = f"{TORCH}/lib/libtorch_cpu.so"
LIBC = "/usr/lib/libc.so.6"
LIBSTDCXX = "/usr/lib/libstdc++.so.6"
BUCKET = 0x7F30_0000_0000
SECOND = 0x7F30_4000_0000
BUCKET_BYTES = 4 << 20
PARAMETERS = {
    f"layers.{n}.{name}": 512 << 10 for n in range(2) for name in ("in_proj", "out_proj", "linear1", "linear2")
}
FUNCTIONS = {
    0x1100: "read_sum(float const*, unsigned long)",
    0x2200: "c10d::Logger::set_env_variables()",
    0x2300: "c10d::Logger::set_construction_data_and_log(std::string const&, std::vector<int, std::allocator<int> >)",
    0x3300: "abort",
    0x3400: "raise",
    0x4400: "__gnu_cxx::__verbose_terminate_handler()",
    0x4500: "std::terminate()",
    0x4550: "__cxa_throw",
    0x4600: "gloo::transport::tcp::Pair::read()",
    0x5500: "_PyEval_EvalFrameDefault",
    0x5600: "malloc_printerr",
}
LOAD_FLOAT = bytes.fromhex("f30f1000")  # movss xmm0, dword ptr [rax]
LOAD_MEMBER = bytes.fromhex("488b87b0000000")  # mov rax, qword ptr [rdi + 0xb0]
Frames = list[tuple[str, str, int]]
BACKWARD: Frames = [
    ("Peek.backward", SCRIPT, 41),
    ("BackwardCFunction.apply", f"{TORCH}/autograd/function.py", 315),
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 865),
    ("backward", f"{TORCH}/autograd/__init__.py", 354),
    ("Tensor.backward", f"{TORCH}/_tensor.py", 630),
    ("main", SCRIPT, 88),
    ("<module>", SCRIPT, 99),
]
NATIVE = [(VICTIM, 0x1100), (PYTHON, 0x5500), (PYTHON, 0x5510), (PYTHON, 0x5520), (TORCH_CPU, 0x9900)]


def load(directory: Path, *boxes: Box, launcher: Mapping[str, Any] | None = None) -> Job:
    """Writes the run, decodes it, and names native functions by their offsets."""
    write_run(directory, *boxes, launcher=launcher)
    job = load_job(directory, symbols=False)
    return replace(job, processes=tuple(_named(process) for process in job.processes))


def _named(process: Any) -> Any:
    crash = process.snapshot.crash
    if crash is None:
        return process
    threads = tuple(replace(thread, native_stack=_functions(thread.native_stack)) for thread in crash.threads)
    crash = replace(crash, native_stack=_functions(crash.native_stack), threads=threads)
    return replace(process, snapshot=replace(process.snapshot, crash=crash))


def _functions(stack: tuple[NativeFrame, ...]) -> tuple[NativeFrame, ...]:
    return tuple(replace(frame, function=FUNCTIONS.get(frame.offset or 0)) for frame in stack)


def agent(*children: tuple[int, dict[str, Any]], at: float = 3000, code: int = 1) -> Box:
    """torchrun's agent: reaps its workers, then raises ChildFailedError."""
    box = Box(pid=100, ppid=99, argv=["/venv/bin/python", "/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"])
    for pid, ending in children:
        box.at(at).wait(pid, **ending)
    if code:
        box.exception("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "train.py FAILED")
    return box.at(at + 50).exit(code)


def rank(number: int, **more: Any) -> Box:
    """A rank under the agent, with versions and a process group."""
    box = Box(pid=101 + number, ppid=100, rank=number, **more)
    return box.versions(python="3.11.7", torch="2.13.0+cpu", cuda=None).group("0", [0, 1])


def ddp(box: Box, *, rebuilt: bool) -> Box:
    """Two steps of DDP: the first layout, the rebuild at the start of the second forward, collectives."""
    made = box.site(("DistributedDataParallel.__init__", DDP, 901), ("main", SCRIPT, 70))
    box.at(900).alloc(BUCKET, BUCKET_BYTES, made)
    box.at(910).buckets("model", [{"addr": BUCKET, "nbytes": BUCKET_BYTES, "parameters": PARAMETERS}], 0, rebuilt=False)
    box.at(1200).step(0)
    box.at(1300).collective("gloo:all_reduce", addr=BUCKET, nbytes=BUCKET_BYTES, state="completed")
    if rebuilt:
        dropped = box.site(("DistributedDataParallel._pre_forward", DDP, 1641), ("main", SCRIPT, 84))
        box.at(1500).step(1).alloc(SECOND, BUCKET_BYTES, dropped).free(BUCKET, dropped)
        box.at(1510).buckets("model", [{"addr": SECOND, "nbytes": BUCKET_BYTES, "parameters": PARAMETERS}], 1)
        box.at(1700).collective("gloo:all_reduce", addr=SECOND, nbytes=BUCKET_BYTES)
    return box


def use_after_free(directory: Path, *, peer_first: bool = False) -> Job:
    """The demo: rank 1 reads DDP's first bucket in backward; rank 0 loses its connection."""
    victim = ddp(rank(1), rebuilt=True).at(1800)
    addr = BUCKET + 81920
    victim.crash(
        addr=addr,
        python=BACKWARD,
        native=NATIVE,
        node="PeekBackward",
        node_sequence_nr=12,
        node_is_python=True,
        registers={"rax": addr, "rdi": BUCKET, "trapno": 14},
        code_bytes=LOAD_FLOAT,
        mappings=[(0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, PYTHON)],
    )
    peer = lost_peer(ddp(rank(0), rebuilt=True).at(1500 if peer_first else 1950))
    return load(directory, agent((102, {"signal": 11}), (101, {"exit_code": 1})), peer, victim)


def lost_peer(box: Box) -> Box:
    """A rank that raises gloo's exception about a closed connection."""
    text = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:51234"
    box.exception(
        "RuntimeError", text, [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3008), *BACKWARD[-2:]]
    )
    return box.exit(1)


def detail(directory: Path, garbage: int = 0x281) -> Job:
    """torch 2.13 under TORCH_DISTRIBUTED_DEBUG=DETAIL: both ranks die in DDP's constructor."""
    boxes = []
    for number in (0, 1):
        box = rank(number, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
        box.at(900).collective("gloo:broadcast", addr=BUCKET, nbytes=4096, state="completed")
        box.at(1000 + 90 * number).crash(
            addr=garbage + 0xB0,
            python=[("DistributedDataParallel.__init__", DDP, 901), ("main", SCRIPT, 70), ("<module>", SCRIPT, 99)],
            native=[(TORCH_CPU, 0x2200), (TORCH_CPU, 0x2300), (PYTHON, 0x5500)],
            registers={"rdi": garbage, "trapno": 14},
            code_bytes=LOAD_MEMBER,
            mappings=[(0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, PYTHON)],
        )
        boxes.append(box)
    return load(directory, agent((101, {"signal": 11}), (102, {"signal": 11})), *boxes)


def single(directory: Path, argv: tuple[str, ...] = ("python", "train.py"), **crash: Any) -> Job:
    """One plain process that crashes in `read_sum`, called from train.py:41."""
    box = Box(pid=101, ppid=99, argv=argv)
    box.at(500).crash(**{"python": BACKWARD[:1], "native": NATIVE[:2], **crash})
    return load(directory, box)


def clean(directory: Path) -> Job:
    """Two ranks and their agent, all with status 0; a helper of rank 0 fails, as probing for a compiler does."""
    helper = Box(pid=150, ppid=101, argv=["/bin/sh", "-c", "which gcc"]).at(100).exit(1)
    ranks = [ddp(rank(number), rebuilt=False).at(2000).exit(0) for number in (0, 1)]
    ranks[0].wait(150, exit_code=1)
    return load(directory, agent((101, {"exit_code": 0}), (102, {"exit_code": 0}), code=0), *ranks, helper)


def program_in(run: Path, source: str) -> Path:
    """A program with this text, older than what is recorded there: its lines are those that ran."""
    run.mkdir(exist_ok=True)
    program = run / "program.py"
    program.write_text(source, encoding="utf-8")
    os.utime(program, (1, 1))
    return program
