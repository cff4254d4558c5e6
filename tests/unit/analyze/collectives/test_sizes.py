"""Tensors of other sizes at one line: a call that one rank left out, a variable of the rank, rows chosen by data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import NamedTensor
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

Sizes = Sequence[Sequence[int]]
LOOP = """def average(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
"""
OTHER = LOOP.replace("p.grad is not None", "due(p)")
PLAIN = LOOP.replace("        if p.grad is not None:\n    ", "    ")


def advised(
    run: Path,
    source: str,
    way: Sequence[tuple[str, int]],
    sizes: tuple[Sizes, Sizes],
    op: str = "allreduce_",
    held: Sequence[Mapping[str, str]] = (),
) -> str:
    return advice(reported(run, source, way, sizes, op, held))


def reported(
    run: Path,
    source: str,
    way: Sequence[tuple[str, int]],
    sizes: tuple[Sizes, Sizes],
    op: str = "allreduce_",
    held: Sequence[Mapping[str, str]] = (),
    models: Sequence[Mapping[str, int]] = (),
    ended: int | None = None,
) -> Report:
    """Both ranks call from the innermost line; the last call of each fails, with variables of rank 0's frames.

    `models`: bytes of the parameters of each rank's model; `ended`: a rank that is ended by SIGTERM before it raises.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    stack: list[Frame] = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)]
    stack += [(function, program, line) for function, line in way]
    for rank, (box, shapes) in enumerate(zip(job.boxes, sizes, strict=True)):
        by = box.site(stack[0], stack[1])
        for number, shape in enumerate(shapes, 1):
            state = "failed" if number == len(shapes) else "completed"
            nbytes = 4 * shape[0] * shape[-1]
            group = job.groups[rank]["0"]
            box.collective(op, group=group, by=by, sequence_nr=number, state=state, sizes=shape, nbytes=nbytes)
        named = [[{"name": name, "value": value} for name, value in values.items()] for values in held]
        outer = [{"frame": n, "variables": values} for n, values in enumerate(named[1:], 2)] if rank == 0 else []
        own = named[0] if rank == 0 and named else []
        if rank == ended:
            box.at(7001).crash(signal=15, code=0, sender_pid=100, python=[])
        else:
            box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=own, outer=outer).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    if ended is not None:
        job.terminated(ended)
    loaded = job.job(run)
    for rank, model in enumerate(models):
        tensors: dict[int, tuple[NamedTensor, ...]] = {
            at: (NamedTensor(f"parameter {name}", "parameter", at, at, nbytes, 1, earlier=False),)
            for at, (name, nbytes) in zip(range(1 << 40, 1 << 41, 1 << 30), model.items(), strict=False)
        }
        loaded = replace(
            loaded,
            processes=tuple(
                replace(item, snapshot=replace(item.snapshot, named=tensors)) if item.rank == rank else item
                for item in loaded.processes
            ),
        )
    return build_report(loaded)


ROUND = [[24, 12], [3, 24], [7, 24]]
LEFT_OUT: tuple[Sizes, Sizes] = ([*ROUND, *ROUND], [*ROUND, *ROUND[:2], ROUND[0]])


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (LOOP, 4, "so that line 3 (`if p.grad is not None:`) leaves out none"),
        (OTHER, 4, "Line 3 (`if due(p):`) decides about the call, and came out differently on rank 1: let one rank"),
        (PLAIN, 3, "Rank 1 left out the call of line 3 for a tensor of [7, 24], which it made in earlier rounds"),
        (PLAIN, 3, "Let every rank make each call, with zeros"),
    ],
)
def test_call_that_one_rank_left_out_is_found_by_the_earlier_rounds(
    source: str, line: int, words: str, run: Path
) -> None:
    """Both have passed both sizes before, and rank 1 had passed the missing one at that place."""
    assert words in advised(run, source, [("average", line)], LEFT_OUT)


@pytest.mark.parametrize(
    "sizes", [([*ROUND, [24, 12]], [*ROUND, [24, 13]]), ([[24, 12]], [[3, 24]]), (ROUND, [*ROUND[:2], ROUND[0]])]
)
def test_sizes_that_are_new_on_a_rank_are_other_tensors(sizes: tuple[Sizes, Sizes], run: Path) -> None:
    """The look-alikes: a size that a rank has never passed, a first call, and a first round."""
    assert "left out the call" not in advised(run, LOOP, [("average", 4)], sizes)


VOCABULARY = """class Vocab:
    def __init__(self, words):
        self.words = sorted(set(words))
def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
def main(text, rank):
    mine = {0}
    vocab = Vocab(mine)
    model = Model(len(vocab.words))
    average(model)
"""
BY_RANK = VOCABULARY.format("text[rank::2]")


def counted(run: Path, source: str, words: str) -> str:
    held = [{"p": "[11, 16] float32"}, {"vocab.words": words}]
    return advised(run, source, [("average", 6), ("main", 11)], ([[11, 16]], [[10, 16]]), held=held)


def test_length_that_depends_on_the_rank_is_named(run: Path) -> None:
    """The one variable with that number, through the class that keeps it."""
    said = counted(run, BY_RANK, "list of 11")
    assert said.startswith(
        "Dimension 0 of `p.grad` is 11 on rank 0 and 10 on rank 1; `vocab.words` is a list of 11 on "
    )
    assert "which depends on the rank (line 8: `mine = text[rank::2]`)" in said


DELTAS = """def step(model, anchor):
    for p, old in zip(model.parameters(), anchor):
        delta = old - p.detach()
        dist.all_reduce(delta)
"""


@pytest.mark.parametrize(
    ("mine", "theirs", "named"),
    [
        ({"tok.weight": 704, "head.bias": 44}, {"tok.weight": 640, "head.bias": 40}, True),
        ({"tok.weight": 704}, {"tok.weight": 704}, False),
        ({"tok.weight": 704}, {"head.weight": 640}, False),
        ({"tok.weight": 704, "head.weight": 704}, {"tok.weight": 640, "head.weight": 640}, False),  # which of them?
        ({}, {}, False),
    ],
)
def test_parameter_that_has_another_size_in_the_model_of_each_rank_is_named(
    mine: Mapping[str, int], theirs: Mapping[str, int], named: bool, run: Path
) -> None:
    report = reported(run, DELTAS, [("step", 4)], ([[11, 16]], [[10, 16]]), models=(mine, theirs))
    said = "The models differ: `tok.weight` has 176 elements on rank 0 and 160 elements on rank 1. Make what its size"
    assert advice(report).startswith(said) == named
    assert ("the models differ in `tok.weight`" in summary(report)) == named


def test_another_length_or_data_of_all_ranks_is_not(run: Path) -> None:
    """The look-alikes."""
    assert "vocab.words" not in counted(run, BY_RANK, "list of 12")
    assert "vocab.words" not in counted(run, VOCABULARY.format("list(text)"), "list of 11")


BOXES = """def gather(pred):
    dist.all_gather(everything, pred)
def validate(boxes, scores):
    keep = {0}
    pred = boxes[keep]
    gather(pred)
"""


def test_rows_that_are_selected_by_data_are_named(run: Path) -> None:
    """With what all_gather() needs."""
    way, sizes = [("gather", 2), ("validate", 6)], ([[250, 7]], [[240, 7]])
    said = advised(run, BOXES.format("scores > 0.5"), way, sizes, "allgather_")
    assert said.startswith(
        "`pred` comes from line 5 (`pred = boxes[keep]`), which selects by the data (`keep`): its size"
    )
    other = advised(run, BOXES.format("slice(0, 8)"), way, sizes, "allgather_")
    assert "selects by the data" not in other


PADDED = """def scatter(partial):
    dist.reduce_scatter_tensor(mine, partial)
def layer(batch):
    longest = {0}
    x = torch.zeros(longest, 5)
    scatter(x @ w)
"""


def test_size_is_followed_to_the_line_that_makes_the_tensor(run: Path) -> None:
    """From the product to the factor that has that dimension; it is no gradient of FSDP's."""
    held = [{"partial": "[38, 8] float32"}, {"x": "[38, 5] float32"}]
    way, sizes = [("scatter", 2), ("layer", 6)], ([[38, 8]], [[42, 8]])
    said = advised(run, PADDED.format("max(batch)"), way, sizes, "_reduce_scatter_base_", held)
    assert said.startswith(
        "Dimension 0 of `partial` is 38 on rank 0 and 42 on rank 1. It comes from line 5 (`x = torch.zer"
    )
    other = advised(run, PADDED.format("max(batch)"), way, sizes, "_reduce_scatter_base_")
    assert "It comes from line 6 (`x @ w`)" in other and "for different parameters" not in other


COUNTS = """def reduce(rows):
    for name, row in {0}:
        dist.all_reduce(row)
"""


@pytest.mark.parametrize(("loop", "named"), [("rows.items()", True), ("sorted(rows.items())", False)])
def test_dict_in_the_order_of_its_keys_is_named(loop: str, named: bool, run: Path) -> None:
    """The look-alike is sorted."""
    said = advised(run, COUNTS.format(loop), [("reduce", 3)], ([[4]], [[6]]))
    assert ("goes through a dict in the order in which its keys came" in said) == named


PARTS = """def gather(own):
    dist.all_gather(parts, own)
def mine(items):
    return {0}
class Evaluator:
    def __init__(self, model, items):
        self.model, self.items = model, mine(items)
    def outputs(self):
        return torch.cat([self.model(item) for item in self.items])
    def run(self):
        own = self.outputs()
        for _ in range(2):
            own = self.model(own)
        gather(own)
"""
SPLIT = "items.chunk(dist.get_world_size())[dist.get_rank()]"


@pytest.mark.parametrize("split", [SPLIT, "items[rank::world]"])
def test_size_is_followed_through_calls_and_loops_to_the_split_by_rank(split: str, run: Path) -> None:
    """With the whole that was split, where the two sizes are such parts."""
    way = [("gather", 2), ("run", 14)]
    said = advised(run, PARTS.format(split), way, ([[16, 5]], [[15, 5]]), "allgather_")
    assert said.startswith("Dimension 0 of `own` is 16 on rank 0 and 15 on rank 1. It comes from line 4 (`items")
    assert "): 31 is no multiple of the 2 ranks. Either all_gather() the sizes first, pad to the largest" in said
    named = "; the size comes from line 4 (`items"
    assert named in summary(reported(run, PARTS.format(split), way, ([[16, 5]], [[15, 5]]), "allgather_"))
    other = advised(run, PARTS.format(split), way, ([[16, 5]], [[9, 5]]), "allgather_")
    assert "It may come from line 4 (`items" in other and "gives each rank a part of its own" in other


@pytest.mark.parametrize("ended", [0, 1])
def test_split_is_found_from_the_rank_whose_way_is_known(ended: int, run: Path) -> None:
    """Of the other one, ended before its error was recorded, only the line of the call is known: two lead there."""
    way = [("gather", 2), ("run", 14)]
    source = PARTS.format(SPLIT) + "    def probe(self, own):\n        gather(own)\n"
    report = reported(run, source, way, ([[16, 5]], [[15, 5]]), "allgather_", ended=ended)
    assert "; the size comes from line 4 (`items" in summary(report)
    assert "31 is no multiple of the 2 ranks" in summary(report)


def test_size_that_no_line_makes_by_the_rank_is_not_said_to_be(run: Path) -> None:
    """The look-alike seeds by the rank, and has the same number on all."""
    way, sizes = [("gather", 2), ("run", 14)], ([[16, 5]], [[15, 5]])
    said = advised(run, PARTS.format("torch.randn(31, 5, generator=seeded(rank))"), way, sizes, "allgather_")
    assert "line 4" not in said and "those of 31" not in said
    known = PARTS.format("read(31)").replace("return", "torch.manual_seed(rank); return")
    assert "depends on the rank" not in advised(run, known, way, sizes, "allgather_")
    said = advised(run, PARTS.format("read(31, rank)"), way, sizes, "allgather_")
    assert "It may come from line 4 (`read(31, rank)`), which depends on the rank" in said


IN_TURN = """def mine(items):
    for n, item in enumerate(items):
        {0}
    return own
def gather(items):
    scores, labels = [], []
    for item in {1}:
        scores.append(net(item))
        labels.append(item)
    dist.all_gather(parts, torch.cat(labels))
"""


@pytest.mark.parametrize(
    ("body", "items", "line"),
    [
        ("if n % world == rank:\n            own.append(item)", "mine(items)", 3),
        ("if n % world != rank:\n            continue\n        own.append(item)", "mine(items)", 3),
        ("pass", "[item for n, item in enumerate(items) if n % world_size == dist.get_rank()]", 7),
        ("pass", "itertools.islice(items, rank, None, world)", 7),
        ("pass", "[item for n, item in enumerate(items) if n % 2 == 0]", 0),
        ("if n % world != 0:\n            continue\n        own.append(item)", "mine(items)", 0),
    ],
)
def test_size_of_what_the_ranks_take_in_turn(body: str, items: str, line: int, run: Path) -> None:
    """Into the second of two lists that one statement makes; the look-alikes have no rank in them."""
    source = IN_TURN.format(body, items)
    last = source[: source.index("dist.all_gather")].count("\n") + 1
    said = advised(run, source, [("gather", last)], ([[49]], [[48]]), "allgather_")
    assert (f"It comes from line {line} (`" in said and "): 97 is no multiple of the 2 ranks." in said) == (line > 0)
    assert line or "multiple" not in said


COLLECTED = """def loader_of(data):
    mine = list(range({0}, len(data), world))
    return DataLoader(Subset(data, mine))
def embed_all(data):
    model = DistributedDataParallel(nn.Linear(4, 8))
    chunks = []
    for x in loader_of(data):
        chunks.append(model(x))
    features = torch.cat(chunks)
    dist.all_gather(everything, features)
"""


@pytest.mark.parametrize(("first", "named"), [("dist.get_rank()", True), ("start", False)])
def test_size_of_what_a_loop_collects_is_followed_to_the_part_of_the_rank(first: str, named: bool, run: Path) -> None:
    """Through the list, the loader and its dataset."""
    sizes = ([[1024, 8]], [[1023, 8]])
    said = advised(run, COLLECTED.format(first), [("embed_all", 10)], sizes, "allgather_")
    assert ("It comes from line 2 (`range(dist.get_rank(), len(data), world)`)" in said) == named


BATCHES = """def train(data):
    loader = DataLoader(data, batch_size=64)
    for x in loader:
        dist.all_gather_into_tensor(everything, x)
"""


@pytest.mark.parametrize(
    ("loader", "sizes", "words"),
    [
        (
            "batch_size=64, drop_last=False, 537",
            (64, 52),
            "(drop_last=False), and 52 may be a last one. Set drop_last=Tr",
        ),
        (
            "batch_size=64, drop_last=False, 500",
            (52, 64),
            "the last batch of `loader` has 52 of 500 samples (batch_size=64). Set",
        ),
        ("batch_size=64, drop_last=True, 537", (64, 52), None),
        ("batch_size=32, drop_last=False, 537", (64, 52), None),  # other rows
        ("batch_size=64, drop_last=False, 537", (64, 70), None),
    ],
)
def test_last_batch_of_a_rank_is_told(loader: str, sizes: tuple[int, int], words: str | None, run: Path) -> None:
    """By what the loader of the rank that raised is."""
    shapes = ([[sizes[0], 8]], [[sizes[1], 8]])
    held = [{"loader": f"DataLoader, {loader} samples"}]
    said = advised(run, BATCHES, [("train", 4)], shapes, "_allgather_base_", held=held)
    assert (words or "") in said.replace("The last", "the last")
    assert ("in the DataLoader at line 2 (`DataLoader(data" in said) == (words is not None)


OBJECTS = """def average(center):
    dist.all_reduce(center)
def objects_of(rank, step):
    count = 150 if step < 5 else {0}
    return torch.randn(count, 8, generator=seeded(rank)), torch.zeros(count)
def main(rank):
    for step in range(9):
        objects, labels = objects_of(rank, step)
        center = net(objects)
        average(center)
"""


def test_number_of_rows_that_a_function_makes_of_the_rank(run: Path) -> None:
    """It comes from it where the numbers are those of the expression; it may where they are not."""
    way, sizes = [("average", 2), ("main", 10)], ([[100, 8]], [[200, 8]])
    said = advised(run, OBJECTS.format("100 + 100 * rank"), way, sizes)
    assert "It comes from line 4 (`150 if step < 5 else 100 + 100 * rank`), which depends on the rank" in said
    assert "all_reduce() adds entry to entry" in said and "drop_last" not in said
    assert "It may come from line 4" in advised(run, OBJECTS.format("100 + 50 * rank"), way, sizes)
    assert "depends on the rank" not in advised(run, OBJECTS.format("count_of(step)"), way, sizes)


COUNTED = """class Confusion:
    def update(self, target):
        found = torch.bincount(target{0})
        self.counts = found if self.counts is None else self.counts + found
    def compute(self):
        dist.all_reduce(self.counts)
"""


def test_size_that_the_data_makes_is_named(run: Path) -> None:
    """Through an attribute that another method sets; the look-alike has a size of its own."""
    way, sizes = [("compute", 6)], ([[30]], [[24]])
    said = advised(run, COUNTED.format(""), way, sizes)
    assert "It may come from line 3 (`torch.bincount(target)`), whose size is by what is in the data" in said
    assert "bincount(minlength=...)" in said
    assert "bincount" not in advised(run, COUNTED.format(", minlength=30"), way, sizes)


SQUARE = """def count(rows):
    k = {0}
    return torch.bincount(rows[:, 0] * k + rows[:, 1], minlength=k * k).view(k, k).float()
def load(path):
    return torch.load(path)
def main(path):
    rows = load(path)
    {1}
    table = count(rows)
    dist.all_reduce(table)
"""


@pytest.mark.parametrize("number", ["int(rows.max()) + 1", "rows.max().item() + 1", "len(set(rows.tolist()))"])
def test_number_out_of_the_data_that_a_size_is_made_of_is_named(number: str, run: Path) -> None:
    """Both dimensions of a square; in the headline, too."""
    report = reported(run, SQUARE.format(number, "pass"), [("main", 10)], ([[8, 8]], [[9, 9]]))
    words = f"may come from line 2 (`k = {number}`), a number that each rank takes out of its own data"
    assert words in summary(report) and words in advice(report)
    assert "agree on it first: all_reduce() it with MAX" in advice(report)


@pytest.mark.parametrize("number", ["CLASSES", "int(rows.shape[1])", "path.count('/')"])
def test_other_numbers_are_not_said_to_be_out_of_the_data(number: str, run: Path) -> None:
    assert "out of its own data" not in advised(
        run, SQUARE.format(number, "pass"), [("main", 10)], ([[8, 8]], [[9, 9]])
    )


AGREED = """def main(rows):
    k = torch.tensor(int(rows.max()) + 1)
    {0}
    table = torch.zeros(int(k), 4)
    dist.all_reduce(table)
"""


@pytest.mark.parametrize(("agree", "named"), [("pass", True), ("dist.all_reduce(k, op=dist.ReduceOp.MAX)", False)])
def test_number_that_the_ranks_agree_on_is_not_named(agree: str, named: bool, run: Path) -> None:
    said = advised(run, AGREED.format(agree), [("main", 5)], ([[8, 4]], [[9, 4]]))
    assert ("line 2" in said and "out of its own data" in said) == named


LONGEST = """def pad(rows):
    longest = max(len(row) for row in rows)
    return torch.zeros(len(rows), longest)
def main(texts):
    batch = pad(texts[rank::world])
    dist.all_reduce(batch)
"""


@pytest.mark.parametrize(
    ("sizes", "line", "words"),
    [
        (([[16, 5]], [[16, 4]]), 2, "a number that each rank takes out of its own data"),
        (([[16, 5]], [[15, 5]]), 5, "31 is no multiple of the 2 ranks"),
    ],
)
def test_only_the_size_of_the_dimension_that_differs_is_followed(
    sizes: tuple[Sizes, Sizes], line: int, words: str, run: Path
) -> None:
    said = advised(run, LONGEST, [("main", 6)], sizes)
    assert f"from line {line} (" in said and words in said


def test_number_that_only_scales_values_makes_no_size(run: Path) -> None:
    """`x / int(x.max())` has the size of `x`."""
    source = "def main(path):\n    x = torch.load(path)\n    x = x / int(x.max())\n    dist.all_reduce(x)\n"
    assert "out of its own data" not in advised(run, source, [("main", 4)], ([[8, 4]], [[9, 4]]))


TABLE = """class Table:
    def __init__(self, rows, mesh):
        self.weight = {0}
    def whole(self):
        return self.weight.{1}
Table(rows, mesh).whole()
"""


@pytest.mark.parametrize(
    ("made", "gathers", "known"),
    [
        ("DTensor.from_local(rows, mesh, [Shard(0)])", "full_tensor()", True),
        ("tensor.DTensor.from_local(rows, mesh, [Shard(0)])", "redistribute(placements=[Replicate()])", True),
        ("DTensor.from_local(rows, mesh, [Shard(0)], shape=whole, stride=(8, 1))", "full_tensor()", False),
        ("DTensor.from_local(rows, mesh, [Shard(0)], **options)", "full_tensor()", False),
        ("distribute_tensor(rows, mesh, [Shard(0)])", "full_tensor()", False),
        ("DTensor.from_local(rows, mesh, [Shard(0)])", "gather()", False),
    ],
)
def test_parts_that_each_rank_cut_for_itself(made: str, gathers: str, known: bool, run: Path) -> None:
    """The line that says nothing of the whole is named, where the other one gathers just that."""
    way = [("Table.whole", 5), ("<module>", 6)]
    report = reported(run, TABLE.format(made, gathers), way, ([[50, 8]], [[51, 8]]), op="_allgather_base_")
    assert ("takes for granted that the parts of all ranks have one size" in summary(report)) is known
    assert ("pass `shape=` and `stride=` of the whole" in advice(report)) is known
