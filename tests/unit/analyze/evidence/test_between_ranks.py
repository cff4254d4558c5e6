"""Sharded modules and what ranks are given, by the lines of the program; and the near cases that are left alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

LIBRARY = PythonFrame(function="embedding", file="/x/site-packages/torch/nn/functional.py", line=1)
MIXED = "aten.embedding.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor"
VIEW = "Output 0 of View is a view and its base or another view of its base has been modified inplace."


def said(folder: Path, source: str, message: str, way: list[tuple[str, int]], none: str | None = None) -> Explanation:
    """`way`: functions and lines, innermost first, below a function of torch's."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [LIBRARY, *(PythonFrame(function=name, file=str(file), line=line) for name, line in way)]
    held = [VariableReport(name=none, value="None")] if none is not None else None
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message, variables=held), frames)


MODEL = """class Net(nn.Module):
    def forward(self, x):
        return self.encode(x)
    def encode(self, x):
        return self.embed(x)
def main(x):
    net = Net()
    {0}
    {1}
    return net.{2}(x)
main(1)
"""


@pytest.mark.parametrize(
    ("wrap", "message", "advice"),
    [
        ("fully_shard(net)", MIXED, "Call `register_fsdp_forward_method(net, 'encode')` (torch.distributed.fsdp)"),
        ("net = FSDP(net)", VIEW, "Go through `net(...)` and let forward() return what encode() does"),
    ],
)
def test_method_of_a_sharded_module_beside_forward(wrap: str, message: str, advice: str, tmp_path: Path) -> None:
    """The call from outside is named."""
    found = said(tmp_path, MODEL.format(wrap, "pass", "encode"), message, [("encode", 5), ("main", 10)])
    assert found.words is not None and found.subject is not None
    assert found.words.startswith("Line 10 calls `net.encode()`, and FSDP gathers the parameters of a module in its")
    assert advice in found.words and "(line 8)" in found.words
    assert "since line 10 calls `net.encode()` and not forward()" in found.subject


@pytest.mark.parametrize(
    ("line", "value", "known"),
    [
        ("self.embed(x) * self.scale", "DTensor [16] float32, Shard(0)", True),
        ("self.embed(x) * scale", "DTensor [16] float32, Shard(0)", False),  # of no module, perhaps
        ("self.embed(x) * self.scale", "[16] float32", False),
    ],
)
def test_parameter_of_its_own_that_a_method_beside_forward_uses(
    line: str, value: str, known: bool, tmp_path: Path
) -> None:
    """No function of torch's lies between; the module is called by no forward() all the same."""
    file = tmp_path / "train.py"
    file.write_text(MODEL.format("fully_shard(net)", "pass", "encode").replace("self.embed(x)", line), encoding="utf-8")
    name = line.rpartition("* ")[2]
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [PythonFrame(function=name, file=str(file), line=at) for name, at in [("encode", 5), ("main", 10)]]
    held = [VariableReport(name=name, value=value), VariableReport(name="x", value="[4, 16] float32")]
    report = ExceptionReport(type="RuntimeError", message=MIXED, variables=held)
    found = explained(snapshot, report, frames).words or ""
    assert ("Call `register_fsdp_forward_method(net, 'encode')`" in found) is known


def test_line_that_shards_the_module_itself_is_named_and_not_that_of_its_layers(tmp_path: Path) -> None:
    """Behind the layers' alone, the call would do nothing."""
    layers = "[fully_shard(item) for item in\n        net.layers]; fully_shard(net)"
    found = said(tmp_path, MODEL.format(layers, "pass", "encode"), MIXED, [("encode", 5), ("main", 11)])
    assert found.words is not None and "after fully_shard() (line 9)" in found.words


@pytest.mark.parametrize(
    ("wrap", "other", "message"),
    [
        ("pass", "pass", MIXED),
        ("fully_shard(net)", "register_fsdp_forward_method(net, 'encode')", MIXED),
        ("fully_shard(net)", "parallelize_module(net, mesh, plan)", MIXED),
        ("net = FSDP(net)", "pass", VIEW.replace("View is", "UnbindBackward0 is")),
    ],
)
def test_other_reasons_are_left_alone(wrap: str, other: str, message: str, tmp_path: Path) -> None:
    """No sharding, a method that gathers, tensor parallelism, and a view that the program itself changed."""
    found = said(tmp_path, MODEL.format(wrap, other, "encode"), message, [("encode", 5), ("main", 10)])
    assert "gathers" not in (found.words or "")


def test_method_that_forward_calls_is_no_bypass(tmp_path: Path) -> None:
    """`self.encode()` inside of forward()."""
    way = [("encode", 5), ("forward", 3), ("main", 10)]
    found = said(tmp_path, MODEL.format("fully_shard(net)", "pass", "__call__"), MIXED, way)
    assert "gathers" not in (found.words or "")


def test_whole_state_of_a_sharded_module(tmp_path: Path) -> None:
    """Where the copy itself met a DTensor; an error of keys has another reason."""
    source = "saved = torch.load('x.pt')\nfully_shard(net)\nnet.load_state_dict(saved)\n"
    message = f"Error(s): While copying the parameter named \"w\", an exception occurred : ('{MIXED}',)."
    found = said(tmp_path, source, message, [("<module>", 3)])
    assert found.words is not None
    assert "the parameters of `net` are in parts since fully_shard() (line 2)" in found.words
    assert "set_model_state_dict(net, saved, options=StateDictOptions(full_state_dict=True))" in found.words
    other = said(tmp_path, source, 'Error(s): Missing key(s) in state_dict: "w".', [("<module>", 3)])
    assert "set_model_state_dict" not in (other.words or "")


SHARED = """def shared(rank):
    config = None
    if {0}:
        config = [read()]
    dist.broadcast_object_list(config, src=0)
shared(1)
"""


def test_list_of_objects_that_only_one_rank_has(tmp_path: Path) -> None:
    """With the two lines; the look-alike's condition is none of the rank."""
    message, way = "object of type 'NoneType' has no len()", [("shared", 5), ("<module>", 6)]
    found = said(tmp_path, SHARED.format("rank == 0"), message, way, "config")
    assert (found.words or "").startswith(
        "`config` is None on this rank (line 2), and only another rank makes a list (line 4): "
        "broadcast_object_list() fills"
    )
    other = said(tmp_path, SHARED.format("ready"), message, way, "config")
    assert "only rank 0" not in (other.words or "") and "is None on this rank (line 2):" in (other.words or "")


MODELS = """def words(rank):
    return {0}
def main():
    known = words(dist.get_rank())
    net = Tagger(len(known))
    return DDP(net)
main()
"""


def test_model_of_what_depends_on_the_rank(tmp_path: Path) -> None:
    """Through the function that makes it; the look-alike takes all."""
    message = (
        "[1]: params[0] in this process with sizes [9, 8] appears not to match sizes of the same param in process 0."
    )
    way = [("main", 6), ("<module>", 7)]
    found = said(tmp_path, MODELS.format("texts[rank::2]"), message, way)
    assert "may depend on the rank (line 2: `texts[rank::2]`)" in (found.words or "")
    assert (found.subject or "").startswith("the ranks built different models: `Tagger(len(known))` (line 5)")
    assert "depend on the rank" not in (said(tmp_path, MODELS.format("texts"), message, way).words or "")


FOLDERS = """def classes_of(root, rank):
    files = sorted(glob(os.path.join(root, {0})))
    return sorted(set(files))
def main(rank):
    classes = classes_of("data", rank)
    model = DDP({1}, device_ids=[rank])
main(0)
"""


@pytest.mark.parametrize(
    ("files", "model", "message", "named"),
    [
        ("f'part{rank}'", "build(classes).to(rank)", "params[2] in this process with sizes [2, 16] appears not", True),
        ("'part'", "build(classes).to(rank)", "params[2] in this process with sizes [2, 16] appears not", False),
        ("f'part{rank}'", "build(classes).to(rank)", "DDP: another error", False),
    ],
)
def test_rank_that_is_only_a_device_makes_no_other_model(
    files: str, model: str, message: str, named: bool, tmp_path: Path
) -> None:
    """`.to(rank)` and `device_ids=[rank]`; and another error of DDP's is told by itself."""
    whole = f"[1]: {message} to match sizes of the same param in process 0."
    found = said(tmp_path, FOLDERS.format(files, model), whole, [("main", 6), ("<module>", 7)])
    assert ("may depend on the rank (line 2" in (found.words or "")) == named
    assert ("depend on the rank" in (found.words or "")) == named


def test_mesh_and_start_method(tmp_path: Path) -> None:
    """By the argument."""
    mesh = "shape = (2, 4)\ninit_device_mesh('cpu', shape)\n"
    found = said(
        tmp_path, mesh, "Mesh should not be bigger than default world size 2, but found 8 ranks!", [("<module>", 2)]
    )
    assert (found.words or "").startswith("`shape` (line 1: `shape = (2, 4)`) needs 8 ranks, and 2 were started")
    queue = "queue = {0}()\nmp.spawn(train, args=(queue,), nprocs=2)\n"
    message = "A SemLock created in a fork context is being shared with a process in a spawn context."
    found = said(tmp_path, queue.format("multiprocessing.Queue"), message, [("<module>", 2)])
    assert 'make it by `torch.multiprocessing.get_context("spawn").Queue()`' in (found.words or "")
    assert "get_context" not in (said(tmp_path, queue.format("channel"), message, [("<module>", 2)]).words or "")


def test_model_of_what_a_function_does_with_the_rank(tmp_path: Path) -> None:
    """A folder that it fills; the look-alike only seeds by the rank."""
    message = (
        "[1]: params[0] in this process with sizes [9, 8] appears not to match sizes of the same param in process 0."
    )
    source = """def root(rank):
    {0}
    return folder
def main():
    known = Folder(root(dist.get_rank()))
    net = Tagger(known.classes)
    return DDP(net)
main()
"""
    way = [("main", 7), ("<module>", 8)]
    found = said(tmp_path, source.format("fill(folder, 5 if rank == 0 else 4)"), message, way)
    assert "(line 5: `root(dist.get_rank())`)" in (found.words or "")
    assert "may depend" not in (said(tmp_path, source.format("torch.manual_seed(rank)"), message, way).words or "")


VOCABULARY = """class Vocabulary:
    def __init__(self, texts):
        counts = {0}
        self.words = sorted(counts)
    def __len__(self):
        return len(self.words)
def read(rank, count):
    rng = random.Random(rank)
    texts, tags = [], []
    for _ in range(count):
        texts.append(draw(rng))
        tags.append(0)
    return texts, tags
def main():
    rank = int(os.environ["RANK"])
    texts, tags = {1}
    words = Vocabulary(texts)
    return DDP(Tagger({2}))
main()
"""
COUNTER = "Counter(word for words in texts for word in words)"


@pytest.mark.parametrize(
    ("counts", "texts", "size", "named"),
    [
        (COUNTER, "read(rank, 90)", "len(words)", True),
        ("{word for words in texts for word in words}", "read(rank, 90)", "len(words) + 1", True),
        (COUNTER, "read(rank, 90)", "num_words=1 + len(words)", True),
        (COUNTER, "read(0, 90)", "len(words)", False),
        (COUNTER, "read(rank, 90)", "64", False),
        ("[word for words in texts for word in words]", "read(seed, 90)", "len(words)", False),
    ],
)
def test_model_of_what_is_counted_in_the_data_of_each_rank(
    counts: str, texts: str, size: str, named: bool, tmp_path: Path
) -> None:
    """Lists of one length, of other words; the look-alikes: the same data, and a size that is no count of it."""
    message = "[1]: params[0] in this process with sizes [9, 8] appears not to match sizes of the same param in process"
    way = [("main", 18), ("<module>", 19)]
    found = said(tmp_path, VOCABULARY.format(counts, texts, size), f"{message} 0.", way)
    assert (
        "(line 17: `Vocabulary(texts)`), of data that may depend on the rank (line 16: " in (found.words or "")
    ) == (named)
    assert ("depend on the rank" in (found.words or "")) == named


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("random.Random(rank)", "random.Random(0)\n    if rank == 0:\n        download()"),
        ("read(rank, 90)", "load_rows('train', quiet=rank != 0)"),
        ("    words = ", "    box = [texts]\n    dist.broadcast_object_list(box)\n    texts = box[0]\n    words = "),
        (
            "    return DDP",
            "    box = [words]\n    dist.broadcast_object_list(box)\n    words = box[0]\n    return DDP",
        ),
    ],
)
def test_data_that_all_ranks_have_alike_is_not_named(old: str, new: str, tmp_path: Path) -> None:
    """The look-alikes: a rank that only downloads first, and what one rank gives the others."""
    source = VOCABULARY.format(COUNTER, "read(rank, 90)", "len(words)").replace(old, new)
    lines = source.splitlines()
    at = next(number for number, text in enumerate(lines, 1) if "DDP(" in text)
    message = (
        "[1]: params[0] in this process with sizes [9, 8] appears not to match sizes of the same param in process 0."
    )
    found = said(tmp_path, source, message, [("main", at), ("<module>", len(lines))])
    assert "depend on the rank" not in (found.words or "")


@pytest.mark.parametrize(
    ("imported", "before", "told"),
    [
        ("import torch.multiprocessing as mp", "prepare()", True),
        ("import torch.multiprocessing as mp", "prepare() if flag else None", False),
        ("from own import mp", "prepare()", False),
        ("import torch.multiprocessing as mp", "pass", False),
    ],
)
def test_call_that_chose_the_start_method(imported: str, before: str, told: bool, tmp_path: Path) -> None:
    """A pool made before; the look-alikes: below a condition, another module's, none in the program."""
    source = (
        f"{imported}\ndef prepare():\n    with mp.Pool(2) as pool:\n        pass\n"
        f"def main(flag):\n    {before}\n    mp.set_start_method('spawn')\nmain(1)\n"
    )
    found = said(tmp_path, source, "context has already been set", [("main", 7), ("<module>", 8)])
    chosen = "`mp.Pool(2)` at line 3 has chosen the start method, and it is chosen once"
    assert (found.words or "").startswith(chosen) == told
    assert ("get_context('spawn')" in (found.words or "")) == told


SAMPLING = """class Net(nn.Module):
    def forward(self, x):
        return self.embed(x)
    def generate(self, x):
        return {0}(x)
def main(x):
    net = FSDP(Net())
    return {1}(x)
main(1)
"""


@pytest.mark.parametrize(("inner", "told"), [("self.forward", True), ("self", True), ("model", False)])
@pytest.mark.parametrize("called", ["net.generate", "net.module.generate"])
def test_method_of_an_fsdp_module_that_calls_its_own_forward(
    called: str, inner: str, told: bool, tmp_path: Path
) -> None:
    """generate(): the wrapper takes no part; the look-alike goes through another name, which may be the wrapper."""
    way = [("forward", 3), ("generate", 5), ("main", 8)]
    found = said(tmp_path, SAMPLING.format(inner, called), "'weight' must be 2-D", way)
    assert (f"Line 8 calls `{called}()`" in (found.words or "")) == told
    assert ("FSDP.summon_full_params(net, writeback=False)" in (found.words or "")) == told


STORE = """class Workers:
    def announce(self):
        self.store.set({0}, address)
    def peers(self):
        return [self.store.get(f"workers/{{r}}/address") for r in range(self.world)]
Workers().peers()
"""
WAITED = "wait timeout after 6000ms, keys: /workers/0/address"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            'f"worker/{self.rank}/address"',
            "Line 5 waits for the key `workers/0/address`, and line 3 sets `worker/{self.rank}/address`: no line",
        ),
        ('"worker/" + str(self.rank) + "/address"', "and line 3 sets"),
        ('f"workers/{self.rank}/address"', None),  # of another rank, which did not come there
        ('f"{self.prefix}/{self.rank}/address"', None),
        ("self.key()", None),
        ('"ready"', None),  # meant for something else
        ('f"worker/{r}/address", own); self.store.get(f"worker/{r}/address"', None),  # another key, which is read
    ],
)
def test_key_that_no_line_sets(key: str, words: str | None, tmp_path: Path) -> None:
    """Where another one is so much like it that both are meant to be one."""
    found = said(tmp_path, STORE.format(key), WAITED, [("peers", 5), ("<module>", 6)]).words or ""
    assert words in found if words is not None else "no line of the program sets" not in found
