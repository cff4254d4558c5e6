"""cuda-out-of-memory: why a request was so large, what kept the memory, and which limit was reached."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.synth import Box

DEVICE = 0x7F60_0000_0000
MIB, GIB = 1 << 20, 1 << 30
ROOM = "GPU 0 has a total capacity of 80.00 GiB of which 70.00 GiB is free. This process has "


def oom(box: Box, wanted: int, live: int, *, segments: int | None = None, count: int = 7, free: int = 70 * GIB) -> None:
    nbytes = segments if segments is not None else live
    box.entry(48, struct.pack("<IIQQQQQIIII", 0, 0, wanted, free, live, 0, nbytes, count, 1, 0, 0))


def ended(run: Path, box: Box, source: str, line: int, values: dict[str, str], **more: Any) -> Any:
    """The program raised it at this line of its text, in main(), with these variables."""
    program = str(s.program_in(run, source))
    message = f"CUDA out of memory. Tried to allocate 1.00 GiB. {more.pop('room', ROOM)}"
    stack = [*more.pop("inner", ()), ("main", program, line), *more.pop("around", ())]
    held = [{"name": name, "value": value} for name, value in values.items()]
    box.at(500).exception("torch.OutOfMemoryError", message, stack, variables=held, **more).exit(1)
    report = build_report(s.load(run, box, launcher={"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}))
    assert verdict(report) == ("cuda-error", "certain")
    return report


def grown(run: Path, *sizes: int, rounds: int = 20, line: int = 5) -> Box:
    """Each round has left blocks of these sizes, which are live."""
    box = Box(pid=101, ppid=99)
    by, at = box.code("main", str(run / "program.py"), line), DEVICE
    for _ in range(rounds):
        for nbytes in sizes:
            box.devices.alloc(at, nbytes, by, box.epoch)
            at += nbytes
    oom(box, 16 * MIB, rounds * sum(sizes), count=rounds * len(sizes))
    return box


# Requests that are too large


@pytest.mark.parametrize(
    ("line", "values", "wanted", "words", "change"),
    [
        (
            "loss = output - target",
            {"output": "[480000, 1] float32 on cuda:0", "target": "[480000] float32 on cuda:0"},
            480000 * 480000 * 4,
            "`output - target` makes [480000, 480000] of `output` [480000, 1] and `target` [480000]",
            "`output.squeeze(-1)` or `target.unsqueeze(-1)`",
        ),
        (
            "loss = criterion(output, target)",
            {"output": "[480000] float32 on cuda:0", "target": "[480000, 1] float32 on cuda:0"},
            480000 * 480000 * 4,
            "`criterion(output, target)` makes [480000, 480000]",
            "`target.squeeze(-1)` or `output.unsqueeze(-1)`",
        ),
        (
            "distances = (points[:, None] - points[None]).norm(dim=-1)",
            {"points": "[200000, 3] float32 on cuda:0"},
            200000 * 200000 * 3 * 4,
            "makes [200000, 200000, 3]",
            "do it in parts",
        ),
        (
            "scores = queries @ keys.T",
            {"queries": "[300000, 64] float16 on cuda:0", "keys": "[400000, 64] float16 on cuda:0"},
            300000 * 400000 * 2,
            "`queries @ keys.T` makes [300000, 400000]",
            "for a part of the rows at a time",
        ),
        (
            "table = torch.zeros(count, 2 * width, device=device)",
            {"count": "30000000", "width": "1024"},
            30000000 * 2048 * 4,
            "makes [30000000, 2048]",
            "`count` is 30000000",
        ),
        (
            "hot = F.one_hot(tokens, size)",
            {"tokens": "[64, 4096] int64 on cuda:0", "size": "128000"},
            64 * 4096 * 128000 * 8,
            "`F.one_hot(tokens, size)` makes [64, 4096, 128000]",
            "`size` is 128000",
        ),
        (
            "logits = head(hidden)",
            {
                "hidden": "[64, 8192, 512] float32 on cuda:0",
                "head": "Linear(in_features=512, out_features=128000, bias=True) float32",
                "input of head": "[64, 8192, 512] float32 on cuda:0",
            },
            64 * 8192 * 128000 * 4,
            "layer `head` (Linear) makes [64, 8192, 128000]",
            "fewer rows at a time",
        ),
        (
            "mask = lengths[:, None] > positions[None, :]",
            {"lengths": "[400000] int64 on cuda:0", "positions": "[600000] int64 on cuda:0"},
            400000 * 600000,
            "makes [400000, 600000] of `lengths[:, None]` [400000, 1] and `positions[None, :]` [1, 600000]",
            "do it in parts",
        ),
        (
            "nearest = torch.cdist(queries, table).argmin(dim=1)",
            {"queries": "[300000, 16] float32 on cuda:0", "table": "[500000, 16] float32 on cuda:0"},
            300000 * 500000 * 4,
            "`torch.cdist(queries, table)` makes [300000, 500000]",
            "for a part of the rows at a time",
        ),
        (
            "tiled = states.unsqueeze(1).repeat(1, steps, 1)",
            {"states": "[4096, 1024] float32 on cuda:0", "steps": "16384"},
            4096 * 16384 * 1024 * 4,
            "makes [4096, 16384, 1024]",
            "`steps` is 16384",
        ),
        (
            "pairs = torch.zeros((nodes.size(0), nodes.size(0)), device=nodes.device)",
            {"nodes": "[300000, 4] float32 on cuda:0"},
            300000 * 300000 * 4,
            "makes [300000, 300000]",
            "make it smaller, or in parts",
        ),
    ],
    ids=[
        "column",
        "of a loss",
        "all pairs",
        "matrices",
        "sizes",
        "one_hot",
        "layer",
        "mask",
        "distances",
        "repeat",
        "from a shape",
    ],
)
def test_the_expression_that_makes_exactly_the_request_is_named(
    run: Path, line: str, values: dict[str, str], wanted: int, words: str, change: str
) -> None:
    """By recorded shapes and numbers."""
    box = Box(pid=101, ppid=99)
    oom(box, -(-wanted // 512) * 512, 4 * MIB)
    report = ended(run, box, f"def main():\n    {line}\n", 2, values)
    assert "more than the whole device has (80.0 GiB): " in summary(report)
    assert words in summary(report) and change in advice(report)
    assert "No memory that could be freed is enough" in advice(report)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"output": "[480000, 1] float32 on cuda:0", "target": "[480000] float32 on cuda:0"}, 3 * GIB),
        ({"output": "[800, 1] float32 on cuda:0", "target": "[800] float32 on cuda:0"}, 2560256),
        (dict.fromkeys(("output", "target"), "[65536, 4096] float32 on cuda:0"), GIB),
    ],
    ids=["another size", "small", "a small part of what is live"],
)
def test_shapes_that_do_not_make_the_request_are_not_its_reason(run: Path, values: dict[str, str], wanted: int) -> None:
    """A coincidence of shapes, and a model that is simply too large."""
    box = Box(pid=101, ppid=99)
    oom(box, wanted, 60 * GIB)
    report = ended(run, box, "def main():\n    loss = output - target\n", 2, values)
    assert "makes" not in summary(report) and "squeeze" not in advice(report)


def test_attention_is_told_to_use_what_makes_no_matrix(run: Path) -> None:
    """And a request within the device's capacity is not called too large for it."""
    box = Box(pid=101, ppid=99)
    oom(box, 8 * 32768 * 32768 * 4, 60 * GIB)
    source = "def main():\n    return torch.softmax(q @ k.transpose(-2, -1) / 8, -1) @ v\n"
    values = dict.fromkeys("qkv", "[1, 8, 32768, 64] float32 on cuda:0")
    report = ended(run, box, source, 2, values)
    assert "makes [1, 8, 32768, 32768]" in summary(report) and "the device had no room" in summary(report)
    assert "scaled_dot_product_attention() never makes it whole" in advice(report)
    assert "freed" not in advice(report)


# What keeps the memory

EPOCH = """def main():
    model.train()
    losses = []
    for batch in batches:
        losses.append(step(model, batch))
    sum(losses).backward()
"""
EVALUATE = """def main():
    model.eval()
    losses = []
    for batch in batches:
        losses.append(model(batch))
    return losses
"""
GRAPHS = {"losses": "list of 20", "losses[0]": "[] float32 on cuda:0"}


@pytest.mark.parametrize(("source", "change"), [(EPOCH, "Call backward() for each `step(model, batch)`"),
                                                (EVALUATE, "Run main() under torch.no_grad()")])  # fmt: skip
@pytest.mark.parametrize("recorded", [False, True])
def test_a_list_that_keeps_graphs_is_named(run: Path, source: str, change: str, recorded: bool) -> None:
    """By the number of its tensors with a graph; in older recordings by its length only."""
    told = {"tensors in losses": "20, 10240 bytes on devices, 20 with graph"} if recorded else {}
    report = ended(run, grown(run, 16 * MIB, 4 * MIB, 512), source, 5, {**GRAPHS, **told})
    words = "keeps 20 results with their autograd graphs" if recorded else "probably keeps the autograd graph of each"
    assert "`losses` (program.py:5: `losses.append(" in summary(report) and words in summary(report)
    assert change in advice(report)
    assert "20 of 16.0 MiB from program.py:5" in evidence(report)


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (EPOCH, {"losses": "list of 20", "losses[0]": "[] float32 0.5"}),
        (EPOCH, {"losses": "list of 9", "losses[0]": "[] float32 on cuda:0"}),
        (EPOCH.replace("step(model, batch)", "step(model, batch).item()"), {"losses": "list of 20"}),
        (EPOCH.replace("step(model, batch)", "step(model, batch).detach()"), GRAPHS),
        (EVALUATE.replace("def", "@torch.no_grad()\ndef").replace("    model.eval()\n", ""), GRAPHS),
        ("def main():\n    losses = [step(b) for b in batches]\n\n\n    step(losses)\n", GRAPHS),
    ],
    ids=["on the host", "another number", "numbers", "detached", "no_grad", "no store"],
)
def test_a_list_that_may_not_be_what_keeps_it_is_not_named(run: Path, source: str, values: dict[str, str]) -> None:
    """The blocks are those of layers or of a cache."""
    report = ended(run, grown(run, 16 * MIB, 4 * MIB), source, 5, values)
    assert "losses" not in summary(report) and "losses" not in advice(report)


def test_a_model_of_many_layers_keeps_what_its_forward_needs(run: Path) -> None:
    """A list of hidden states within one forward pass is not what makes it too large."""
    values = {**GRAPHS, "tensors in losses": "20, 10240 bytes on devices, 20 with graph"}
    around = [("Module._call_impl", f"{s.TORCH}/nn/modules/module.py", 1790)]
    report = ended(run, grown(run, 16 * MIB), EPOCH, 5, values, around=around)
    assert "losses" not in summary(report)


def test_an_attribute_that_keeps_tensors_is_named_with_the_line_that_stores_them(run: Path) -> None:
    """Without graphs it is the tensors themselves."""
    source = (
        "class Recorder:\n    def hook(self, module, given, output):\n"
        "        self.maps[module].append(output.detach())\n"
        "def main():\n    model(batch)\n"
    )
    values = {"tensors in recorder.maps": f"40, {40 * 64 * MIB} bytes on devices, 0 with graph"}
    report = ended(run, grown(run, 64 * MIB, rounds=40), source, 5, values)
    words = "`recorder.maps` (program.py:3: `self.maps[module].append(output.detach())`) keeps 40 tensors, 2.5 GiB"
    assert words in summary(report)
    assert "Keep of `output.detach()` only what is read later" in advice(report)


def test_few_tensors_are_not_the_reason(run: Path) -> None:
    """They are a small part of what is live."""
    values = {"tensors in seen": f"40, {40 * MIB} bytes on devices, 0 with graph"}
    report = ended(run, grown(run, 64 * MIB, rounds=40), "def main():\n    seen.append(x)\n", 2, values)
    assert "seen" not in summary(report)


TOTAL = """def main():
    total = 0
    for batch in batches:
        loss = step(batch)
        total += loss
"""


def test_a_sum_that_has_a_graph_is_named(run: Path) -> None:
    """`total += loss` keeps the graph of each loss."""
    report = ended(run, grown(run, 64 * MIB, line=4), TOTAL, 4, {"graph of total": "yes"})
    assert "`total` (program.py:5: `total += loss`) has an autograd graph" in summary(report)
    assert "`.item()` or `.detach()` of `loss`" in advice(report)


@pytest.mark.parametrize(
    "source",
    [TOTAL.replace("loss = step", "loss = total = step"), TOTAL + "        loss.backward()\n"],
    ids=["begun anew in each round", "freed by backward()"],
)
def test_a_sum_of_one_round_is_not_what_keeps_it(run: Path, source: str) -> None:
    """As a loss and its penalty."""
    report = ended(run, grown(run, 64 * MIB, line=4), source, 4, {"graph of total": "yes"})
    assert "total" not in summary(report)


RECORDER = """class Recorder:
    def hook(self, module, given, output):
        self.maps[module].append(output.detach())
def main():
    for _ in range(20):
        batch = load()
        model(batch)
"""


def in_rounds(run: Path, *, apart: bool) -> Box:
    """Line 7 leaves a block in each of 20 rounds, each begun by line 6; or all at once."""
    box = Box(pid=101, ppid=99)
    load, call = (box.code("main", str(run / "program.py"), line) for line in (6, 7))
    for number in range(20):
        if apart or not number:
            box.devices.alloc(DEVICE - 64 * MIB * (number + 1), 2 * MIB, load, box.epoch)
        box.devices.alloc(DEVICE + 64 * MIB * number, 64 * MIB, call, box.epoch)
    oom(box, 16 * MIB, 21 * 64 * MIB, count=21)
    return box


@pytest.mark.parametrize(
    ("source", "apart", "within", "words"),
    [
        (RECORDER, True, False, "; program.py:3: `self.maps[module].append(output.detach())` may keep it"),
        (RECORDER.replace("self.maps[module].append(output.detach())", "self.last = output"), True, False, ""),
        (RECORDER + "        recorder.maps.clear()\n", True, False, ""),
        (RECORDER, False, False, None),
        (RECORDER, True, True, None),
    ],
    ids=["kept", "no store", "emptied", "one round", "of a layer"],
)
def test_growth_is_named_with_the_only_statement_that_may_keep_it(
    run: Path, source: str, apart: bool, within: bool, words: str | None
) -> None:
    """A model's layers are allocated in one round; within a layer it is one forward pass."""
    around = [("Module._call_impl", f"{s.TORCH}/nn/modules/module.py", 1790)] if within else []
    report = ended(run, in_rounds(run, apart=apart), source, 7, {}, around=around)
    grew = "memory grew from round to round at program.py:7"
    assert (f"{grew}{words}." in summary(report)) if words is not None else ("grew" not in summary(report))
    assert ("in 20 rounds, are live" in evidence(report)) == (words is not None)


# Limits


def test_a_limit_of_its_own_is_named_and_not_another_process(run: Path) -> None:
    """The device has room."""
    box = Box(pid=101, ppid=99)
    oom(box, 64 * MIB, 2 * GIB)
    source = "torch.cuda.set_per_process_memory_fraction(0.02)\ndef main():\n    step()\n"
    room = f"{ROOM.replace('This', 'Including non-PyTorch memory, this')}3.44 GiB memory in use. 2.80 GiB allowed;"
    report = ended(run, box, source, 3, {}, room=room)
    assert "beyond its own limit of 2.8 GiB" in summary(report)
    assert "program.py:1: `torch.cuda.set_per_process_memory_fraction(0.02)`" in evidence(report)
    assert "nvidia-smi" not in advice(report)


@pytest.mark.parametrize(("free", "others"), [(1, True), (70, False)])
def test_other_processes_are_named_where_they_have_most(run: Path, free: int, others: bool) -> None:
    """By what the device has left, and not by what torch has."""
    box = Box(pid=101, ppid=99)
    oom(box, 2 * GIB, 2 * GIB, free=free * GIB)
    room = (
        f"GPU 0 has a total capacity of 80.00 GiB of which {free}.00 GiB is free. Process 77 has 60.00 GiB "
        "memory in use. Including non-PyTorch memory, this process has 3.00 GiB memory in use."
    )
    report = ended(run, box, "def main():\n    step()\n", 2, {}, room=room)
    assert ("process 77 the most (60.0 GiB)" in advice(report)) == others


@pytest.mark.parametrize("whole", [False, True])
def test_memory_in_pieces_is_told_with_the_largest_piece(run: Path, whole: bool) -> None:
    """Not where one piece would do."""
    box = Box(pid=101, ppid=99)
    by = box.code("page", s.SCRIPT, 8)
    box.devices.segment(DEVICE, 100 * MIB)
    for place in range(5):
        box.devices.alloc(DEVICE + (10 if whole else 20) * place * MIB, 10 * MIB, by, box.epoch)
    oom(box, 40 * MIB, 50 * MIB, segments=100 * MIB, count=5)
    report = ended(run, box, "def main():\n    step()\n", 2, {})
    words = "50.0 MiB of torch's memory are in no tensor, but in pieces of at most 10.0 MiB"
    assert (words in summary(report)) != whole
