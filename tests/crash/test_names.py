"""Names and referrers of storages: real processes fault at a known byte of a known storage."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.render.text import render_text
from pytracer.report.job import Fault, Holder, ProcessReport
from tests.conditions import needs_core, needs_native, needs_torch
from tests.support.cli import ROOT
from tests.support.crash import Ended, environment, line_of, victim

pytestmark = [needs_core, needs_native, needs_torch]

PROGRAM = "named_storage.py"
OFFSET = 3 * 4096 + 40
NAMES = {
    "parameter": "parameter layers.0.weight",
    "buffer": "buffer seen",
    "buffer_with_new_data": "buffer seen",
    "buffer_that_was_replaced": "buffer seen",
    "gradient": "gradient of layers.0.weight",
    "gradient_of_this_step": "gradient of first.weight",
    "optimizer_state": "exp_avg_sq of layers.0.weight",
    "loaded_optimizer_state": "exp_avg of layers.0.weight",
    "parameter_of_no_module": "momentum_buffer of 0 of group 0 of SGD",
    "user_name": "kv_cache",
    "user_name_in_dict": "state['layers'][1]",
    "user_name_of_dead_object": "flat cache",
    "wrapped": "parameter layers.0.weight",
    "gradient_in_bucket": "gradient of layers.0.weight",
    "moved_buffer": "buffer seen",
    "moved_parameter": "parameter layers.0.weight",
    "swapped": "parameter layers.0.weight",
    "loaded": "parameter layers.0.weight",
    "loaded_by_assignment": "parameter layers.0.weight",
    "new_data": "parameter layers.0.weight",
    "copied": "parameter layers.0.weight of Net #2",
}
FREED = {
    "before_the_move": "parameter layers.0.weight",
    "gradient_that_was_freed": "gradient of layers.0.weight",
    "parameter_of_dead_model": "parameter layers.0.weight",
}
HOLDERS = {
    "local": ("local", "kv_cache", "local.<locals>.step"),
    "list_item": ("local", "layers[1]", "list_item"),
    "dict_item": ("local", "state['keys']", "dict_item"),
    "cell": ("cell", "captured", "cell.<locals>.inner"),
    "module_global": ("global", "TABLE", None),
    "attribute": ("local", "self.cache", "Net.look_up"),
    "item_of_attribute": ("local", "self.caches[1]", "Net.look_up"),
    "view": ("local", "row", "view"),
}


def crashed(case: str, run: Path, way: str = "preload") -> tuple[Ended, ProcessReport, Fault]:
    """The case's process after its fault, at the address that the program announced."""
    done = victim(PROGRAM, case, run=run, way=way)
    assert done.status == -signal.SIGSEGV, done.stderr
    (process,) = [item for item in done.report.processes or [] if item.pid == done.pid]
    fault = process.fault
    assert fault is not None
    assert fault.addr == done.stdout.strip()
    crash = done.box.crash
    assert crash is not None
    assert (crash.steps_faulted, crash.steps_late) == ((), ())
    return done, process, fault


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", NAMES)
def test_live_storage_is_called_by_its_name(case: str, run: Path) -> None:
    """The name of the tensor at that byte, and the offset in it."""
    _, process, fault = crashed(case, run)
    assert [
        note for note in process.notes or [] if "search for the operator's tensors" not in note
    ] == []  # on a busy machine
    storage = fault.storage
    assert storage is not None
    assert (fault.kind, storage.state) == ("in-storage", "live")
    assert NAMES[case] in (storage.names or [])
    (named,) = [item for item in storage.named or [] if item.name == NAMES[case]]
    assert named.offset_bytes == OFFSET
    followed = NAMES[case].startswith(("parameter", "gradient", "buffer"))
    assert named.how == ("handler" if followed else "recorded")


@pytest.mark.parametrize("case", FREED)
@pytest.mark.quick(1)
def test_freed_storage_keeps_the_name_that_it_had(case: str, run: Path) -> None:
    """What was recorded during its lifetime is reported after the tensor moved or was destroyed."""
    _, _, fault = crashed(case, run)
    storage = fault.storage
    assert storage is not None
    assert (fault.kind, storage.state) == ("freed-storage", "freed")
    (named,) = [item for item in storage.named or [] if item.offset_bytes is not None]
    assert (named.name, named.offset_bytes, named.how) == (FREED[case], OFFSET, "recorded")


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", HOLDERS)
def test_variable_that_holds_the_storage_is_named(case: str, run: Path) -> None:
    """As a Python expression, with the line of its frame."""
    done, _, fault = crashed(case, run)
    assert fault.storage is not None
    holder = (fault.storage.holders or [Holder()])[0]
    kind, expression, function = HOLDERS[case]
    assert (holder.kind, holder.expression, holder.crashed_thread) == (kind, expression, True)
    assert holder.python is not None
    assert function is None or holder.python.function == function
    assert holder.python.file is not None and holder.python.file.endswith(PROGRAM)
    text = " ".join(render_text(done.report).split())
    assert f"`{expression}`" in text
    assert "holds it (possible)" in text
    if case == "local":
        line = line_of(PROGRAM, "fault_at(kv_cache.data_ptr()")
        assert f"{PROGRAM}:{line} holds it (possible)" in text


@pytest.mark.parametrize(
    ("case", "node"),
    [
        ("saved", "MulBackward0"),
        ("saved_by_python", "KeepBackward"),
        ("saved_behind_the_second_edge", "MulBackward0"),
    ],
)
@pytest.mark.quick(1)
def test_activation_is_called_by_the_node_that_saved_it(case: str, node: str, run: Path) -> None:
    """Only the autograd graph references it."""
    done, _, fault = crashed(case, run)
    assert fault.storage is not None
    holders = fault.storage.holders or []
    assert {item.kind for item in holders} == {"saved"}
    assert node in {item.expression for item in holders}
    assert "saved for backward by" in " ".join(render_text(done.report).split())


def test_thread_without_python_is_told_what_others_hold(run: Path) -> None:
    """It has no frames; the variable is reported with the thread whose frame it is in."""
    done, process, fault = crashed("on_a_thread_without_python", run)
    assert process.python_stack == []
    assert fault.storage is not None
    (holder,) = fault.storage.holders or []
    assert (holder.expression, holder.kind, holder.thread, holder.crashed_thread) == (
        "kv_cache",
        "local",
        "main",
        False,
    )
    assert "thread main holds it" in " ".join(render_text(done.report).split())


@pytest.mark.parametrize("case", ["parameter", "optimizer_state", "local"])
@pytest.mark.quick(1)
def test_names_need_no_launcher(case: str, run: Path) -> None:
    """The same after pytracer.enable() in the program."""
    _, _, fault = crashed(case, run, way="enable")
    assert fault.storage is not None
    if case in NAMES:
        assert NAMES[case] in (fault.storage.names or [])
    else:
        assert [item.expression for item in fault.storage.holders or []] == ["kv_cache"]


@pytest.mark.parametrize("way", ["untraced", "preload", "enable"])
@pytest.mark.quick(1)
def test_names_keep_nothing_alive_and_change_nothing(way: str, run: Path) -> None:
    """Reference counts, weak references, swapping, subclasses, hooks after disable(): as untraced."""
    done = victim("names_change_nothing.py", run=run, way=way)
    assert (done.status, done.stdout) == (0, "ok\n"), done.stderr
    if way == "untraced":
        return
    box = done.box
    assert [note.text for note in box.notes] == []
    assert (box.counts["names_dropped"], box.counts["hook_errors"]) == (0, 0)
    assert box.counts["journal_dropped"] == 0
    assert sum(len(items) for items in box.named.values()) < 4 * 8192


def test_name_without_torch_does_nothing() -> None:
    """It neither imports torch nor raises."""
    code = "import pytracer, sys; assert pytracer.name([1], 'x') == [1]; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(PYTHONPATH=str(ROOT)))


@pytest.mark.parametrize("how", ["handler", "mask"])
@pytest.mark.quick(1)
def test_looking_at_names_is_safe_without_our_handler(how: str, run: Path) -> None:
    """A library handles SIGSEGV, or a thread blocks it: freed tensors cause no fault, live ones are followed."""
    done = victim("names_below_other_handlers.py", how, run=run, way="enable")
    assert done.status == 0, done.stderr
    base, looked = done.stdout.split()
    assert looked == "True"
    assert [named.name for named in done.box.named[int(base)] if not named.earlier] == ["parameter 1.weight"]
