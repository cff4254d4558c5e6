"""Real processes fault at known addresses: the report has the exact storage, direction, distance and memory region."""

from __future__ import annotations

from pathlib import Path

import pytest

import pytracer
from pytracer.report.job import PythonFrame
from tests.conditions import needs_capstone, needs_compiler, needs_core, needs_native
from tests.support.crash import line_of, victim

pytestmark = [needs_core, needs_native, needs_compiler]


@needs_capstone
@pytest.mark.parametrize("index", [-3000, -(1 << 31), 1 << 31])
@pytest.mark.quick(1)
def test_overrun_is_told_from_the_pointer_that_was_indexed(index: int, run: Path) -> None:
    """A few pages before a tensor of 64 MiB, or gigabytes away from it."""
    ended = victim("overrun.py", str(index), run=run)
    base, numel = ended.stdout.split()
    verdict = ended.report.verdict
    assert verdict is not None and (verdict.class_, verdict.confidence) == ("out-of-bounds", "certain")
    fault = (ended.report.processes or [])[0].fault
    assert fault is not None and fault.storage is not None
    assert (fault.storage.base, fault.storage.nbytes, fault.storage.found) == (base, int(numel) * 4, "register")
    assert fault.storage.offset_bytes == index * 4
    assert [(item.role, item.says) for item in fault.operands or []] == [
        ("base", "points to the start of a live storage of 64.0 MiB"),
        ("index", f"is {index}, times 4 = {index * 4} bytes"),
    ]
    allocated = fault.storage.allocated and fault.storage.allocated.python
    assert isinstance(allocated, PythonFrame) and allocated.line == line_of("overrun.py", "weights = torch")


def test_every_address_of_a_crash_can_be_asked_for(run: Path) -> None:
    """The code of the victim's library, the stack of the crashed thread and those of others, the heap, the vDSO."""
    ended = victim("fault_beside_threads.py", run=run)
    places = dict(line.split() for line in ended.stdout.splitlines())
    asked = ["rip", "rsp", places["worker"], places["guard"], places["heap"], places["vdso"], places["variable"]]
    report = pytracer.where(str(run), *asked)
    found = [(item.region.kind, item.region.says) for item in report.addresses or [] if item.region is not None]
    assert [kind for kind, _ in found] == ["image", "stack", "stack", "stack-guard", "heap", "kernel-page", "image"]
    assert "read_field+0x" in (found[0][1] or "") and (found[0][1] or "").endswith("(.text)")
    assert found[1][1] == "the stack of the crashed thread"
    assert found[2][1] == f"the stack of thread loader ({places['tid']})"
    assert found[3][1] == f"the guard pages below the stack of thread loader ({places['tid']})"
    assert found[5][1] == "the vDSO"
    assert "repaired_pages+0x0" in (found[6][1] or "") and (found[6][1] or "").endswith("(.bss)")
