"""missing-stream-wait: pinned memory that the host touches while a copy may be on its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.deaths import advice, finding, summary
from tests.support.synth import Box

DEVICE, SIDE = 0x7F60_0000_0000, 0x55D0
PINNED, OTHER = 0x7E60_0000_0000, 0x7E60_0100_0000
MIB = 1 << 20
RACE = "missing-stream-wait"


def pinned(*, late: bool = False) -> Box:
    """A process with a block on cuda:0 and two pinned buffers; `late`: of which nobody knows since when."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 20 * MIB)
    box.devices.alloc(DEVICE, 4 * MIB, at(box, 10), box.epoch)
    for line in (12, 13, 20, 30):
        at(box, line)  # a new call site would begin an epoch
    if late:
        box.freed(PINNED, MIB, at(box, 12), at(box, 12))
    box.live(PINNED, MIB, at(box, 12)).live(OTHER, MIB, at(box, 13))
    return box if late else box.later(1)


def at(box: Box, line: int) -> Any:
    """A line of the program."""
    return box.code("step", s.SCRIPT, line)


def sent(box: Box, addr: int = PINNED, *, asynchronous: bool = True, stream: int = 0) -> Box:
    """A copy to the device."""
    return box.device_op(
        "aten::copy_", at(box, 20), [DEVICE, addr], host=[addr], asynchronous=asynchronous, stream=stream
    )


def fetched(box: Box, addr: int = PINNED, *, asynchronous: bool = True, stream: int = 0) -> Box:
    """A copy from the device."""
    return box.device_op(
        "aten::copy_", at(box, 20), [addr, DEVICE], host=[addr], asynchronous=asynchronous, stream=stream
    )


def on_host(box: Box, name: str = "aten::fill_", *storages: int) -> Box:
    """An operator of the host."""
    storages = storages or (PINNED,)
    return box.device_op(name, at(box, 30), storages, host=storages)


def ended(run: Path, box: Box, *, at_ms: int = 500) -> Any:
    """The program's own check failed."""
    box.at(at_ms).exception("AssertionError", "window 1: wrong sum", [("step", s.SCRIPT, 40)]).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    return build_report(s.load(run, box, launcher=launcher))


def test_a_pinned_buffer_that_the_host_writes_under_a_copy(run: Path) -> None:
    """Both lines, where the buffer comes from, and what the failed check may have been about."""
    report = ended(run, on_host(sent(pinned()), "aten::copy_", PINNED, OTHER))
    found = finding(report, RACE)
    said = (
        "wrote pinned memory at train.py:30 in step while the non_blocking copy at train.py:20 in step may still "
        "have been reading it"
    )
    assert found is not None and found.confidence == "possible" and said in (found.summary or "")
    assert said in summary(report)
    assert "If the check is about what that memory held: after the copy at train.py:20" in advice(report)
    assert "pinned memory of 1.0 MiB, allocated at train.py:12" in "\n".join(found.evidence or [])


@pytest.mark.parametrize("name", ["aten::sum", "aten::_local_scalar_dense", "aten::clone"])
def test_a_pinned_buffer_that_the_host_reads_under_a_copy(run: Path, name: str) -> None:
    """The copy is still writing it."""
    found = finding(ended(run, on_host(fetched(pinned()), name)), RACE)
    assert found is not None and "read pinned memory at train.py:30" in (found.summary or "")
    assert "may still have been writing it" in (found.summary or "")
    assert "or copy with non_blocking=False" in (found.advice or "")


def test_a_copy_to_the_host_does_not_write_the_device(run: Path) -> None:
    """Two streams may read it."""
    box = fetched(pinned(), stream=SIDE)
    box.device_op("aten::mm", at(box, 30), [DEVICE])
    assert finding(ended(run, box), RACE) is None


def test_a_copy_to_the_host_reads_what_another_stream_may_still_write(run: Path) -> None:
    """On a stream of its own, which has not waited."""
    box = pinned()
    fetched(box.device_op("aten::mul_", at(box, 15), [DEVICE]), stream=SIDE)
    found = finding(ended(run, box), RACE)
    assert found is not None and "may still have written, at train.py:15" in (found.summary or "")


@pytest.mark.parametrize(
    "how", ["event", "polled", "stream", "device", "value", "blocking", "nonzero", "blocking copy later"]
)
def test_a_host_that_waited_may_touch_its_memory(run: Path, how: str) -> None:
    """By whatever means."""
    box = sent(pinned(), asynchronous=how != "blocking")
    if how in ("event", "polled"):
        box.stream("recorded", 0, event=0x77).stream("host waited", 0, event=0x77)
    elif how == "stream":
        box.stream("host waited", 0)
    elif how == "device":
        box.stream("host waited for device")
    elif how in ("value", "nonzero"):
        name = "aten::_local_scalar_dense" if how == "value" else "aten::nonzero"
        box.device_op(name, at(box, 25), [DEVICE + 8 * MIB])
    elif how == "blocking copy later":
        sent(box, OTHER, asynchronous=False)
    assert finding(ended(run, on_host(box)), RACE) is None


def test_an_event_that_was_recorded_before_the_copy_says_nothing(run: Path) -> None:
    """The wrong one is waited for."""
    box = pinned().stream("recorded", 0, event=0x77)
    found = finding(ended(run, on_host(sent(box).stream("host waited", 0, event=0x77))), RACE)
    assert found is not None


def test_a_wait_of_a_stream_is_not_one_of_the_host(run: Path) -> None:
    """The host goes on."""
    box = sent(pinned(), stream=SIDE).stream("waits for stream", 0, other=SIDE)
    assert finding(ended(run, on_host(box)), RACE) is not None


@pytest.mark.parametrize(
    ("name", "storages"),
    [
        ("aten::fill_", (OTHER,)),  # another buffer
        ("aten::sum", (PINNED,)),  # the copy reads it as well
        ("aten::copy_", (OTHER, PINNED)),
    ],
)
def test_what_the_host_may_do_while_a_copy_reads(run: Path, name: str, storages: tuple[int, ...]) -> None:
    """Other memory, and reading."""
    assert finding(ended(run, on_host(sent(pinned()), name, *storages)), RACE) is None


@pytest.mark.parametrize("name", ["aten::empty_like", "aten::slice", "aten::zeros_like", "aten::_to_copy"])
def test_what_needs_only_the_shape_reads_nothing(run: Path, name: str) -> None:
    """Views, and tensors of the same size."""
    assert finding(ended(run, on_host(fetched(pinned()), name)), RACE) is None


@pytest.mark.parametrize("late", [True, False])
def test_memory_that_may_have_been_pinned_anew_is_no_race(run: Path, late: bool) -> None:
    """Torch's allocator hands it out once the copy is over."""
    box = sent(pinned(late=late))
    box.device_op("aten::_pin_memory", at(box, 30), [OTHER], host=[OTHER])
    found = finding(ended(run, on_host(box, "aten::copy_", PINNED, OTHER)), RACE)
    assert (found is None) == late


def test_the_pinning_thread_of_a_loader_is_not_the_program(run: Path) -> None:
    """A line of torch's."""
    box = sent(pinned())
    inside = box.code("_pin_memory_loop", "/usr/lib/python3/site-packages/torch/utils/data/_utils/pin_memory.py", 50)
    box.device_op("aten::copy_", inside, [PINNED, OTHER], host=[PINNED, OTHER])
    assert finding(ended(run, box), RACE) is None


def test_a_failed_check_without_a_race_is_told_as_it_is(run: Path) -> None:
    """No reason is made up."""
    report = ended(run, sent(on_host(pinned())))
    assert finding(report, RACE) is None and "; before" not in summary(report)


def produced(box: Box, *, stream: int = 0) -> Box:
    """A result of an operator, which allocates it on the operator's stream."""
    box.device_op("aten::addmm", at(box, 16), [DEVICE], stream=stream)
    box.devices.alloc(DEVICE + 8 * MIB, MIB, at(box, 16), box.epoch, stream=stream)
    return box


def drained(box: Box) -> Box:
    """The result is copied to pinned memory on a stream of its own."""
    return box.device_op(
        "aten::copy_", at(box, 20), [PINNED, DEVICE + 8 * MIB], host=[PINNED], asynchronous=True, stream=SIDE
    )


def test_a_result_that_another_stream_reads_without_a_wait(run: Path) -> None:
    """The line that allocated it is the one that may still write it."""
    found = finding(ended(run, drained(produced(pinned()))), RACE)
    assert found is not None and found.summary is not None
    assert "on stream 0x55d0 of cuda:0 at train.py:20 in step that the default stream of cuda:0 may" in found.summary
    assert "still have written, at train.py:16 in step" in found.summary


@pytest.mark.parametrize("how", ["stream", "an earlier one", "same stream", "another line as well", "captured", "long"])
def test_a_result_of_which_less_is_known_is_no_race(run: Path, how: str) -> None:
    """A wait for any launch of the line; or memory that two lines had; or a launch that was only captured."""
    box = produced(pinned(), stream=SIDE if how == "same stream" else 0)
    if how == "stream":
        box.stream("waits for stream", SIDE, other=0)
    elif how == "an earlier one":
        box.stream("waits for stream", SIDE, other=0).device_op("aten::addmm", at(box, 16), [DEVICE])
    elif how == "another line as well":
        box.devices.free(DEVICE + 8 * MIB, at(box, 17), box.epoch)
        box.devices.alloc(DEVICE + 8 * MIB, MIB, at(box, 18), box.epoch)
    elif how == "captured":
        box.devices.graph(1, at(box, 14), captured_ns=box.now)
    elif how == "long":
        box.later(1500)
    report = ended(run, drained(box), at_ms=2000)
    assert finding(report, RACE) is None
