"""Equal deaths have one fingerprint wherever they happen; look-alikes have two."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytracer.history.fingerprint import fingerprint, fingerprint_parts, native_names, normalized_message
from pytracer.report import job as r

BUILD = "652d9c9b36fdd2ed382a0547d762723d700c3708"


def native(function: str | None, image: str = "/opt/torch/lib/libtorch_cpu.so", **more: Any) -> r.NativeFrame:
    return r.NativeFrame(
        function=function, image=image, build_id=BUILD, offset="0x12093", **{"found": "unwound", **more}
    )


def crash(
    *,
    home: str = "/home/one/project",
    rank: int = 3,
    pid: int = 4711,
    line: int = 120,
    function: str = "step",
    kernel: str = "void at::native::(anonymous namespace)::cpu_index<long>(at::TensorIterator&)",
    class_: str = "out-of-bounds",
    rule: str = "wrong-index",
    operator: str | None = "aten::index",
    below: tuple[r.NativeFrame, ...] = (),
) -> r.Report:
    died = r.ProcessReport(
        pid=pid,
        rank=rank,
        host=f"node{rank}",
        signal=r.Signal(name="SIGSEGV", number=11),
        fault=r.Fault(addr=hex(pid * 4096)),
        operator=r.Operator(name=operator),
        python_stack=[
            r.PythonFrame(function="forward", file=f"{home}/.venv/lib/python3.11/site-packages/torch/nn/x.py", line=9),
            r.PythonFrame(function=function, file=f"{home}/train.py", line=line),
            r.PythonFrame(function="<module>", file=f"{home}/train.py", line=line + 200),
        ],
        native_stack=[native("__memmove_avx512_unaligned_erms", "/lib/libc.so.6"), native(kernel), *below],
    )
    verdict = r.Verdict(class_=class_, rank=rank, pid=pid, summary=f"Rank {rank} read beyond", finding=0)
    return r.Report(verdict=verdict, findings=[r.Finding(id=rule)], processes=[died])


def raised(message: str, type_: str = "RuntimeError", function: str = "load", **verdict: Any) -> r.Report:
    died = r.ProcessReport(
        pid=7,
        exception=r.ExceptionReport(
            type=type_, message=message, python_stack=[r.PythonFrame(function=function, file="/a/data.py", line=3)]
        ),
    )
    return r.Report(verdict=r.Verdict(**{"class_": "python-exception", "pid": 7, **verdict}), processes=[died])


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"home": "/mnt/scratch/u17/checkout-9f2c"},
        {"rank": 511, "pid": 88},
        {"line": 131},  # an edit above
        {"kernel": "void at::native::AVX2::(anonymous namespace)::cpu_index<int>(at::TensorIteratorBase&)"},
        {"kernel": "at::native::DEFAULT::cpu_index(at::TensorIterator&) [clone .constprop.0]"},
        {"below": (native("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"), native("main", "/usr/bin/python3.12"))},
    ],
)
def test_same_crash_has_one_fingerprint_on_another_machine(elsewhere: dict[str, Any]) -> None:
    """Directories, ranks, pids, addresses, lines, processors and interpreters differ."""
    assert fingerprint(crash(**elsewhere)) == fingerprint(crash()), fingerprint_parts(crash(**elsewhere))


@pytest.mark.parametrize(
    "other",
    [
        {"function": "validate"},
        {"class_": "use-after-free", "rule": "use-after-free"},
        {"rule": "overrun"},
        {"operator": "aten::gather"},
    ],
)
def test_look_alike_has_another_fingerprint(other: dict[str, Any]) -> None:
    """Another function, operator, class or rule."""
    assert fingerprint(crash(**other)) != fingerprint(crash())


def test_native_functions_count_where_no_operator_is_known() -> None:
    """Of libraries and extensions; how torch comes to a kernel does not."""
    loop = "at::native::AVX2::vectorized_loop2d<at::native::foo()::{lambda(float)#1}>(char**, long const*)"
    one = crash(operator=None, kernel="my::row_sum(float const*, long)")
    assert fingerprint(one) != fingerprint(crash(operator=None, kernel="my::column_sum(float const*, long)"))
    assert native_names([native("my::sum"), native(loop), native("GOMP_parallel"), native("at::add")]) == [
        "my::sum",
        "at::add",
    ]


def test_thread_of_a_parallel_region_that_died_does_not_matter() -> None:
    """Which of OpenMP's threads meets the bad index first is chance: the main thread, or one without Python."""
    on_main = (crash().processes or [])[0]
    main = r.ThreadReport(tid=1, kind="main", python_stack=on_main.python_stack)
    on_worker = msgspec.structs.replace(
        on_main, python_stack=None, threads=[r.ThreadReport(tid=2, kind="openmp"), main],
        parallel_region_opener=r.Thread(tid=1),
    )  # fmt: skip
    assert fingerprint(msgspec.structs.replace(crash(), processes=[on_worker])) == fingerprint(crash())


def test_fingerprint_names_the_version_of_its_rules() -> None:
    """Those of another version are not compared."""
    assert fingerprint(crash()).startswith("f2-") and len(fingerprint(crash())) == 3 + 16


def test_what_varies_in_a_message_does_not_matter() -> None:
    """Sizes, paths, hosts, quoted names; the words do."""
    one = raised("shard 12 of '/data/a.bin' has 40 rows (0x7f10)")
    assert fingerprint(raised("shard 7 of '/mnt/b.bin' has 4096 rows (0x7e00)")) == fingerprint(one)
    assert fingerprint(raised("shard 7 of '/mnt/b.bin' is empty")) != fingerprint(one)
    assert fingerprint(raised("shard 12 of '/data/a.bin' has 40 rows (0x7f10)", "ValueError")) != fingerprint(one)
    assert normalized_message("\n [10.0.0.1]:4711 said: Bad address\nmore") == "[#]:# said: Bad address"


def test_names_in_code_are_part_of_the_message_and_data_is_not() -> None:
    """What Python quotes in an AttributeError is the cause; the key of a KeyError may be a line of a file."""
    one = raised("'NoneType' object has no attribute 'shape'", "AttributeError")
    assert fingerprint(raised("'NoneType' object has no attribute 'grad'", "AttributeError")) != fingerprint(one)
    assert fingerprint(raised("'cat'", "KeyError")) == fingerprint(raised("'dog'", "KeyError"))


def test_function_that_the_program_called_tells_two_errors_of_one_function_apart() -> None:
    """torch's own frames below it, and what wraps it, do not: they change with torch."""

    def in_step(*above: tuple[str, str]) -> str:
        torch_files = "/venv/lib/python3.11/site-packages/torch/"
        stack = [r.PythonFrame(function=name, file=torch_files + file, line=1) for file, name in above]
        stack += [r.PythonFrame(function="step", file="/a/train.py", line=3)]
        died = r.ProcessReport(pid=7, exception=r.ExceptionReport(type="IndexError", message="x", python_stack=stack))
        return fingerprint(r.Report(verdict=r.Verdict(class_="python-exception", pid=7), processes=[died]))

    layer = in_step(("nn/functional.py", "embedding"), ("nn/modules/sparse.py", "forward"), ("m.py", "_call_impl"))
    assert in_step(("nn/functional.py", "embedding")) != layer != in_step()
    assert in_step(("nn/functional.py", "e2"), ("nn/modules/sparse.py", "forward"), ("x.py", "wrapper")) == layer


def test_place_of_a_process_that_others_ended_does_not_matter() -> None:
    """It was only where the signal met it."""
    for class_, rule in (("oom-kill", "oom-kill"), ("resource-limit", "other-death")):
        out: dict[str, Any] = {"class_": class_, "rule": rule}
        assert fingerprint(crash(**out, function="a")) == fingerprint(crash(**out, function="b"))


def test_line_that_sent_the_signal_is_part_of_the_cause() -> None:
    """A time-out of subprocess.run() in one place, and a watchdog of the program's in another."""

    def killed(function: str | None) -> str:
        place = r.PythonFrame(function=function, file="/a/sweep.py", line=3) if function is not None else None
        verdict = r.Verdict(class_="external-kill", pid=7, facts=[r.Evidence("sender", "", pid=8, python=place)])
        died = r.ProcessReport(pid=7, signal=r.Signal(name="SIGKILL"))
        return fingerprint(r.Report(verdict=verdict, processes=[died]))

    assert len({killed("trial"), killed("watchdog"), killed(None)}) == 3


def test_ranks_that_disagree_are_known_by_what_they_called() -> None:
    """Who died first, and of which time-out, is chance."""

    def desync(first: str, message: str, rank: int, field: str = "op") -> r.Report:
        variants = [
            r.MismatchVariant(call=call, ranks=[0], python=r.PythonFrame(file="/a/t.py", function=where, line=1))
            for call, where in ((f"{first} float32 [4]", "step"), ("broadcast float32 [9]", "save"))
        ]
        group = r.Group(mismatch=r.Mismatch(field=field, variants=variants))
        died = r.ProcessReport(pid=5, rank=rank, exception=r.ExceptionReport(type="RuntimeError", message=message))
        verdict = r.Verdict(class_="collective-mismatch", pid=5, rank=rank)
        return r.Report(verdict=verdict, processes=[died], collectives=r.Collectives(groups=[group]))

    one = fingerprint(desync("all_reduce", "Timed out waiting 1800000ms", 0))
    assert fingerprint(desync("all_reduce", "Connection closed by peer [::1]:555", 1)) == one
    assert fingerprint(desync("all_gather", "Timed out waiting 1800000ms", 0)) != one
    assert fingerprint(desync("all_reduce", "Timed out waiting 1800000ms", 0, "size")) != one


def test_recursion_counts_once_and_guessed_frames_not_at_all() -> None:
    """However deep it was."""
    deep = [native("walk"), native("walk"), native("walk"), native("stale", found="scanned"), native("root")]
    assert native_names(deep) == native_names([native("walk"), native("root")]) == ["walk", "root"]


def test_frame_without_a_name_is_known_by_its_library() -> None:
    """Only where there is nothing better: systems differ in their libraries."""
    assert native_names([native(None)]) == [f"{BUILD}+0x12093"]
    assert native_names([native("read_field"), native(None)]) == ["read_field"]


@pytest.mark.parametrize("report", [r.Report(), r.Report(verdict=r.Verdict(finding=9, pid=1), processes=[])])
def test_report_without_a_culprit_has_a_fingerprint(report: r.Report) -> None:
    """Of whatever is known."""
    assert fingerprint(report).startswith("f2-")
