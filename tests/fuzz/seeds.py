"""Valid inputs that the fuzzer changes: a recording with every kind of content, dumps, images and a run.json."""

from __future__ import annotations

from typing import Any

from tests.support import elf
from tests.support.gpu_cores import EXIT, FAULT, KERNEL_ADDR, MASKED_4, TRAP, WAIT, Lane, Warp, accessing, instructions
from tests.support.synth import MS, WALL, Box
from tests.support.synth_names import LOCAL, MODULE, PARAMETER, SAVED, STATE, NameTree, add_arguments, add_holders
from tests.support.synth_threads import OtherThread

BASE = 0x7F00_0000_0000
BUILD_ID = b"\x01" * 20


def small_box() -> bytes:
    """Every kind of content, in a small recording."""
    shape = {"threads_per_chunk": 2, "records_per_thread": 16, "freed_per_thread": 16, "slots_log2": 4}
    box = Box(rank=1, journal_bytes=8192, epoch_slots=64, **shape)  # type: ignore[arg-type]
    box.versions(python="3.11", torch="2.13").group("0", [0, 1]).note("hooks installed")
    box.module("model", [{"fqn": "w", "addr": BASE, "nbytes": 4096}])
    box.buckets("model", [{"addr": BASE + 0x10000, "nbytes": 8192, "parameters": {"w": 4096, "b": 4096}}])
    box.alloc(BASE, 4096, by=("f", "f.py", 9)).alloc(
        BASE + 0x10000, 1 << 20, by=box.site(("g", "g.py", 4), ("h", "h.py", 8), "AddBackward0", 3)
    )
    box.freed(BASE + 0x20000, 256, by="MulBackward0", freed_by=("f", "f.py", 12), tid=55).busy(BASE + 0x40)
    box.free(BASE + 0x10000, by=("f", "f.py", 13))
    box.step(3).mark("here").event("NODE", "MulBackward0", 7, [BASE])
    box.collective("gloo:all_reduce", addr=BASE, nbytes=4096, state="completed").collective("gloo:broadcast", nbytes=4)
    box.exception("ValueError", "bad", [("f", "f.py", 9)]).wait(77, signal=9).cpp_exception("E", "what")
    box.crash(
        addr=BASE + 0x10010, node="N5torch8autograd9generated12MulBackward0E", node_sequence_nr=7,
        python=[("f", "f.py", 9), ("main", "f.py", 30)], other_python={0x99: [("w", "w.py", 1)]},
        native=[("/gone/x.so", 0x1100), ("/gone/y.so", 0x2200), (None, 0x5010)], build_ids={"/gone/x.so": BUILD_ID},
        mappings=[(0x5000, 0x6000, "r-xp", 0, "/gone/z.so"), (0x7000, 0x8000, "rw-p", 0, "")],
        also=[(55, 11, 1, 0x10, 0x20)], code_bytes=b"\x8b\x07",
        abort_text="free(): invalid pointer", sender_command=["kill", "-11"], fault_file=(4096, 0, 0x01021994),
        memory=[("rdi", BASE, BASE - 16, b"\x01" * 64)], loaded=["/gone/z.so"], threads_how=1,
        threads=[OtherThread(55, "w", [("/gone/x.so", 0x10)] * 60, pthread=0x99, total=100), OtherThread(56, state=0)],
    )  # fmt: skip
    return box.content()


def wide_box() -> bytes:
    """The content that the other one lacks: names, holders, guard mode, devices, FSDP, a signal, groups in use."""
    shape = {"threads_per_chunk": 2, "records_per_thread": 16, "freed_per_thread": 16, "slots_log2": 4}
    box = Box(rank=0, journal_bytes=8192, epoch_slots=64, **shape)  # type: ignore[arg-type]
    made, dropped = box.code("make", "m.py", 5), box.code("drop", "m.py", 6)
    box.guard().guarded(BASE, 100, made, dropped, freed=True, damage=(1, 4, b"\x07" * 4))
    box.unit("layers.0", [{"fqn": "w", "numel": 4, "addr": BASE}]).hook("model", "fp16_compress")
    scope = box.scope("FSDP::all_gather (layers.0)")
    box.scoped(1, scope, [(BASE, 64), (BASE + 64, 64)])
    group = box.group_seen(rank=0)
    box.collective("nccl:all_reduce", addr=BASE, nbytes=64, group=group, state="started")
    box.devices.segment(BASE << 1, 20 << 20)
    box.devices.alloc(BASE << 1, 1 << 20, made, box.epoch)
    box.devices.free(BASE << 1, dropped, box.epoch)
    box.devices.graph(1, made, replays=5, broken=2, captured_ns=box.now)
    box.devices.graph_input(1, BASE << 1, 1 << 20, freed_by=dropped)
    box.devices.stream(0x77, 2, since_ns=box.now)
    tree = NameTree(box)
    root = tree.add(MODULE, "Net")
    weight = tree.add(PARAMETER, "weight", tree.add(MODULE, "fc", root), at=(BASE, 64), grad=BASE + 256)
    tree.add(STATE, "exp_avg", weight, at=(BASE + 512, 64))
    box.signal_seen(15, sender=99)
    box.live(BASE, 64, by=box.stack(made, dropped))
    box.crash(addr=BASE + 8, python=[("f", "f.py", 9)], native=[("/gone/x.so", 0x1100)], registers={"rdi": BASE})
    add_holders(box, [(LOCAL, "caches[1]", BASE, 0), (SAVED, "MulBackward0", BASE, 2)])
    add_arguments(box, [(BASE, 6, (10, 4), None), (BASE + 64, 4, (3,), (0, 2**40)), (0, 6, (0,), None)])
    tree.write()
    return box.content()


def flight_dump() -> dict[str, Any]:
    """As torch 2.13 writes it with NCCL."""
    at = WALL + 6_000_000_000
    entries = [
        {
            "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number,
            "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": at + number,
            "time_discovered_started_ns": at + 5, "time_discovered_completed_ns": None, "input_sizes": [[4, 2]],
            "input_dtypes": ["Float"], "output_sizes": [[4, 2]], "output_dtypes": ["Float"], "state": "started",
            "retired": False, "timeout_ms": 600000, "is_p2p": number == 3,
            "frames": [{"name": "main", "filename": "/job/train.py", "line": 12}],
        }
        for number in (1, 2, 3)
    ]  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "entries": entries, "pg_config": groups}


def run_file() -> dict[str, Any]:
    """run.json of a launcher with every field; "symbols" becomes symbols.json."""
    group = {"version": 2, "path": "/a/b", "oom_kill": 1, "limit": 1 << 30, "peak": 1 << 30, "current": 5}
    counters = {"mono_ns": 1, "cgroups": [group], "vmstat_oom_kill": 5, "psi_memory": {"some_total": 0.5}}
    seen = {"pid": 101, "start_ticks": 1010, "first_mono_ns": 1, "alive_mono_ns": 6_000_000_000, "rss": 900 << 20}
    line = "Memory cgroup out of memory: Killed process 101 (python) total-vm:1kB, anon-rss:2kB"
    xid = "NVRM: Xid (PCI:0000:19:00): 31, pid=101, name=python, Ch 00000008, MMU Fault: faulted @ 0x7f00_00001000"
    log = {"readable": True, "lines": [{"text": line, "log_us": 1, "seen_mono_ns": 2}, {"text": xid, "log_us": 5}]}
    witness = {
        "before": counters, "after": {**counters, "vmstat_oom_kill": 6}, "ended": True, "kernel_log": log,
        "samples": [{"mono_ns": 5, "mem_available": 5, "rss": 7}],
        "processes": [{**seen, "signal": 9, "how": "zombie"}],
        "killers": [{"pid": 5, "name": "earlyoom"}], "scheduler": {"SLURM_JOB_ID": "5"}, "first_pid_namespace": True,
    }  # fmt: skip
    return {
        "schema": "pytracer-run", "version": 1, "pytracer": "0.1.0", "pid": 99, "child_pid": 101, "host": "node0",
        "boot_id": "b0075f00-0000-4000-8000-000000000001", "command": ["python", "train.py"], "cwd": "/work",
        "started_wall_ns": WALL + 5_000_000_000 - 50 * MS, "started_mono_ns": 5_000_000_000 - 50 * MS,
        "ended_mono_ns": 9_000_000_000, "exit_code": None, "signal": 9, "witness": witness,
        "usage": {"maxrss": 5, "user_seconds": 0.5, "system_seconds": 0.5, "major_faults": 1},
        "gpu_core": {"file": "/tmp/none/%h.%p.core", "set": {"A": "b"}, "kept": {}},
        "recording": "/tmp/none", "symbols": {f"{BUILD_ID.hex()}:0x1100": "f(int)"},
    }  # fmt: skip


def gpu_core() -> bytes:
    """Two blocks, an access with its code, another exception, a trap, registers, parameters and a device function."""
    core = accessing(14, (0x7F87_CBE0_0804, 0x7F87_CBE0_0814), MASKED_4, WAIT, parameters=b"12345678")
    core.code += instructions(TRAP, EXIT)
    core.functions = (("$k$_Z4deepPKfi", 0x100, 0x200),)
    core.warps.append(Warp([Lane(KERNEL_ADDR + FAULT + 48)], None, (4, 0, 0), broken=True))
    core.warps.append(Warp([Lane(core.warps[0].lanes[0].pc, 6, registers=(5, 6))], None, (3, 0, 0)))
    return core.content()


def image() -> bytes:
    """An ELF image with functions, data, dynamic symbols and a build id."""
    symbols = [("_ZN2my3runEv", 0x1000, 0x100), ("inner", 0x1040, 0x10), ("asm", 0x1300, 0)]
    return elf.image(
        symbols, [("exported", 0x1000, 64)], BUILD_ID, segment=(0, 0, 0x2000), objects=[("table", 0x1800, 64)]
    )


NAMES = (
    "_ZN3c104Warn4warnEv", "N5torch8autograd7CppNodeIN2my4MineEEE", "_Z1f1AI1BS0_ES_IS1_S1_E", "_ZZN1a1bEvENKUlvE_clEv",
    "_ZN1aI1bJiSt6vectorIiSaIiEEEE1cIXsr1dE1eEEEDaDpOT_", "a::b<c<d>, (e)1>::operator()(f<g>) const",
    "(anonymous namespace)::x(std::map<int, y>)", "operator<< <int>", "_ZGVZN1a1bEvE1c", "_ZTIN1a1bE.isra.0.cold",
)  # fmt: skip
