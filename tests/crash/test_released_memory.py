"""Real programs that use memory which Python had released or replaced: the report has the way it was released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_capstone, needs_compiler, needs_core, needs_native
from tests.support.crash import PROGRAMS, line_of, torchrun, traced_run, victim

pytestmark = [needs_core, needs_native]

WAYS = [
    ("set", "storage-swapped", "which set_() replaced by that of another tensor", "tensor.set_(other)"),
    ("resize", "storage-swapped", "which resize_() replaced or released", ".resize_(0)"),
    ("data", "storage-swapped", "which an assignment to .data replaced", "tensor.data = other"),
    ("share", "storage-swapped", "which share_memory_() moved into shared memory", "tensor.share_memory_()"),
    ("to", "storage-swapped", "which Module.to() or its like replaced", "model.to("),
    ("zero_grad", "stale-grad", "which was a gradient that zero_grad() dropped", "optimizer.zero_grad()"),
    ("module_zero_grad", "stale-grad", "which was a gradient that zero_grad() dropped", "model.zero_grad()"),
    ("grad_none", "stale-grad", "which was a gradient: .grad was set to None", "weight.grad = None"),
    ("drop", "use-after-free", "which was released at stale_address.py:", "tensor = None"),
]


@needs_capstone
@needs_compiler
@pytest.mark.parametrize(("way", "rule", "says", "line"), WAYS, ids=[way for way, *_ in WAYS])
@pytest.mark.quick(1)
def test_stale_address_is_told_with_the_way_in_which_the_memory_went(
    way: str, rule: str, says: str, line: str, run: Path
) -> None:
    """64 MiB each: the rule, its sentence, the storage and the line that released it."""
    report = victim("stale_address.py", way, run=run).report
    verdict = report.verdict
    assert verdict is not None and (verdict.class_, verdict.confidence) == ("use-after-free", "certain")
    assert (report.findings or [])[0].id == rule
    assert says in (verdict.summary or "")
    fault = (report.processes or [])[0].fault
    assert fault is not None and fault.storage is not None and fault.storage.freed is not None
    assert (fault.storage.nbytes, fault.storage.offset_bytes) == (64 << 20, 32 << 20)
    freed = fault.storage.freed.caller or fault.storage.freed.python
    assert freed is not None and freed.line == line_of("stale_address.py", line)


@needs_capstone
@pytest.mark.slow
def test_memory_that_another_thread_replaced_meanwhile(run: Path) -> None:
    """The memory is gone when it is used and there again when the handler looks; a few attempts to meet that race."""
    program = "freed_meanwhile.py"
    rules = []
    for attempt in range(8):
        report = victim(program, run=run.with_name(f"run{attempt}"), MALLOC_MMAP_THRESHOLD_="65536").report
        verdict = report.verdict
        assert verdict is not None and verdict.class_ in ("use-after-free", "clean"), verdict
        rules.append((report.findings or [])[0].id if report.findings else None)
        if rules[-1] == "freed-meanwhile":
            break
    else:
        raise AssertionError(rules)
    assert verdict.confidence == "likely"
    freed, again = line_of(program, 'box["frame"] = None'), line_of(program, '    box["frame"] = torch')
    assert f"at {program}:{line_of(program, 'memset(')} in fill" in (verdict.summary or "")
    assert f"freed at {program}:{freed} in replace meanwhile" in (verdict.summary or "")
    assert f"allocated again at {program}:{again} in replace" in (verdict.summary or "")


@pytest.mark.slow
def test_memory_released_before_wait_is_told_by_its_collective(run: Path) -> None:
    """gloo passes the address to the kernel, which refuses it: the abort on gloo's thread is only the consequence."""
    program = "resized_in_collective.py"
    ended = traced_run(*torchrun(PROGRAMS / program), run=run)
    report = ended.report
    verdict = report.verdict
    assert ended.status != 0 and verdict is not None, ended.stderr
    assert (verdict.class_, verdict.rank) == ("use-after-free", 0), verdict
    line = line_of(program, ".resize_(0)")
    assert verdict.summary == (
        f"Rank 0 released memory at {program}:{line} in reduce_gradients that all_reduce was still working on."
    )
    called = line_of(program, "async_op=True")
    assert any(f"was called at {program}:{called} in reduce_gradients" in item for item in verdict.evidence or [])


@needs_compiler
@pytest.mark.parametrize(("way", "line"), [("numpy", "torch.from_numpy"), ("buffer", "torch.frombuffer")])
@pytest.mark.quick(1)
def test_tensor_whose_memory_was_unmapped_by_its_owner_is_told(way: str, line: str, run: Path) -> None:
    """The tensor is alive; its allocating line is known."""
    report = victim("owner_unmapped.py", way, run=run).report
    verdict, finding = report.verdict, (report.findings or [])[0]
    assert verdict is not None and (finding.id, finding.confidence) == ("unmapped-storage", "certain")
    made = line_of("owner_unmapped.py", line)
    gone = line_of("owner_unmapped.py", "libc.munmap(address, NBYTES)")
    assert f"that was made at owner_unmapped.py:{made} in wrap: the tensor is alive, its memory was unmapped by " in (
        verdict.summary or ""
    )
    assert f"owner_unmapped.py:{gone} in <module>." in (verdict.summary or "")
    assert f"owner_unmapped.py:{gone} in <module> closed what owns the memory too early" in (verdict.advice or "")
    fault = (report.processes or [])[0].fault
    assert fault is not None and fault.storage is not None
    assert (fault.storage.state, fault.storage.origin, fault.storage.offset_bytes) == ("live", way, 4000)


@pytest.mark.slow
def test_exception_beside_memory_that_is_gone_ends_as_it_would(run: Path) -> None:
    """The kernel reads what its variables hold, and refuses; operators of torch would fault, or wait for threads."""
    program = "raises_beside_dead_memory.py"
    plain, done = victim(program, run=run, way="untraced"), victim(program, run=run)
    assert (done.status, done.stdout) == (plain.status, plain.stdout) == (1, "")
    verdict = done.report.verdict
    assert verdict is not None and verdict.class_ == "python-exception"
    errors = [item.exception for item in done.report.processes or [] if item.exception is not None]
    values = {item.name: item.value for error in errors for item in error.variables or []}
    assert values == {"labels": "[512] int64", "weights": "[16384] float32"}
