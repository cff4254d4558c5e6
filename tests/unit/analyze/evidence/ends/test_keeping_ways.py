"""What keeps all that a line makes, in other functions, objects and files; and what lets it go again."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine
from pytracer.analyze.evidence.ends.keeping_ways import Buffer, kept_by_others, kept_in_buffer
from pytracer.analyze.evidence.ends.memory_holders import Holding, keeper
from pytracer.report.job import PythonFrame

LOGGER = """
class Logger:
    def __init__(self):
        self.rows = {begin}
    def log(self, step, **values):
        {store}
    def flush(self):
        {flush}
logger = Logger()
for step in range(9):
    out = model(x)  # made
    logger.log(step, out={passed})
"""
CALLBACKS = """
class Callback:
    def on_batch_end(self, trainer, outputs, batch):
        pass
class Saver(Callback):
    def __init__(self):
        self.seen = []
    def on_batch_end(self, trainer, outputs, batch):
        self.seen.append({kept})
class Trainer:
    def call(self, name, *args):
        for callback in self.callbacks:
            getattr(callback, name)(self, *args)
    def fit(self, loader):
        for batch in loader:
            out = self.step(batch)
            self.call("on_batch_end", out, batch)
    def step(self, batch):
        z = self.encoder(batch)  # made
        return {{"loss": z.sum(), "z": z}}
"""
HOOKS = """
class Tap:
    def __init__(self, model):
        self.seen = {{name: [] for name in NAMES}}
        for name, module in model.named_modules():
            module.register_forward_hook(self.hook(name))
    def hook(self, name):
        def save(module, inputs, output):
            {store}
        return save
for x in loader:
    loss = criterion(model(x), y)  # made
    loss.backward()
"""
CACHED = """
@{cache}
def load(path):
    return torch.rand(shape_of(path))  # made
for path in paths:
    model(load(path))
"""
REPLAY = """
class Memory:
    def __init__(self, size):
        self.items = []
    def push(self, *args):
        {store}
class Agent:
    def __init__(self):
        self.items = None
        self.memory = Memory(9)
class World:
    def step(self, action):
        return torch.rand(4, 84, 84), 0.5  # made
for step in range(9):
    state, reward = world.step(action)
    agent.memory.push(state, reward)
"""
QUEUE = """
class Reader(Thread):
    def __init__(self, source):
        self.source = source
        self.queue = {queue}
    def run(self):
        for batch in self.source:
            self.queue.put(batch)
def batches():
    for n in range(9):
        yield torch.full((64, 3), n)  # made
reader = Reader(batches())
"""


def found(folder: Path, source: str, **others: str) -> KeepingLine | None:
    """For the line with `# made`."""
    return kept_by_others(*_place(folder, source, **others))


def buffer(folder: Path, source: str) -> Buffer | None:
    """For the line with `# made`."""
    return kept_in_buffer(*_place(folder, source))


def _place(folder: Path, source: str, **others: str) -> tuple[Any, PythonFrame]:
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "# made" in text)
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={})
    return snapshot, PythonFrame(function="f", file=str(file), line=line)


def logged(
    store: str = "self.rows.append((step, values))", flush: str = "pass", begin: str = "[]", passed: str = "out"
) -> str:
    """A program with a logger."""
    return LOGGER.format(store=store, flush=flush, begin=begin, passed=passed)


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        (logged(), "line 6 keeps each `values` in `self.rows`"),
        (logged(passed="out.detach()"), "line 6 keeps each `values` in `self.rows`"),
        (
            logged("self.rows.setdefault('out', []).append(values['out'])", begin="{}"),
            "line 6 keeps each `values` in `self.rows`",
        ),
        (logged("self.rows[step] = {**values}", begin="{}"), "line 6 keeps each `values` in `self.rows`"),
        (CALLBACKS.format(kept="{'out': outputs}"), "line 9 keeps each `outputs` in `self.seen`"),
        (
            HOOKS.format(store="self.seen[name].append(output.detach())"),
            "line 9 keeps each `output` in `self.seen[name]`, in save(), a hook of layers",
        ),
        (CACHED.format(cache="lru_cache(maxsize=None)"), "the cache of load() (line 3) keeps each of its results"),
        (CACHED.format(cache="functools.cache"), "the cache of load() (line 3) keeps each of its results"),
        (
            REPLAY.format(store="self.items.append(Transition(*args))"),
            "line 6 keeps each `Transition(*args)` in `self.items`",
        ),
        (
            QUEUE.format(queue="queue.Queue()"),
            "line 8 puts `batch` into `self.queue`, a queue without a limit",
        ),
    ],
)
def test_place_that_keeps_what_others_make_is_named(source: str, subject: str, tmp_path: Path) -> None:
    """Through arguments, callbacks, hooks, caches, generators and queues."""
    result = found(tmp_path, source)
    assert result is not None
    assert result.subject == subject


def test_place_in_another_file_is_named_with_it(tmp_path: Path) -> None:
    """A meter of a module beside the program."""
    meters = (
        "class Meter:\n    def __init__(self):\n        self.outputs = []\n"
        "    def update(self, out):\n        self.outputs.append(out)\n"
    )
    main = (
        "from meters import Meter\nmeter = Meter()\nfor x in loader:\n"
        "    out = model(x)  # made\n    meter.update(out)\n"
    )
    result = found(tmp_path, main, meters=meters)
    assert result is not None
    assert result.subject == "meters.py:5 keeps each `out` in `self.outputs`"


def test_result_that_is_stored_at_once_is_named(tmp_path: Path) -> None:
    """`results.append(scores_of(x))`."""
    source = (
        "def scores_of(x):\n    scores, labels = model(x).max(1)  # made\n    return {'scores': scores, 'n': len(x)}\n"
        "results = []\nfor x in loader:\n    results.append(scores_of(x))\n"
    )
    result = found(tmp_path, source)
    assert result is not None
    assert result.subject == "line 6 keeps each `scores_of(x)` in `results`"


def test_what_forward_returns_is_followed_to_who_calls_the_model(tmp_path: Path) -> None:
    """By the name of the variable that an object of the class is in."""
    source = (
        "class Net(nn.Module):\n    def forward(self, x):\n        return self.head(self.body(x))  # made\n"
        "def validate(model, meter):\n    for x in loader:\n        out = model(x)\n        meter.update(out)\n"
        "class Meter:\n    def __init__(self):\n        self.outputs = []\n"
        "    def update(self, out):\n        self.outputs.append(out)\n"
        "model = Net().eval()\nvalidate(model, Meter())\n"
    )
    result = found(tmp_path, source)
    assert result is not None
    assert result.subject == "line 12 keeps each `out` in `self.outputs`"
    assert found(tmp_path, source.replace("model = Net()", "other = Net()")) is None


@pytest.mark.parametrize(
    "source",
    [
        logged(passed="out.mean().item()"),
        logged(passed="out.shape"),
        logged(flush="self.rows.clear()"),
        logged(flush="self.rows = []"),
        logged() + "    logger.rows.clear()\n",
        logged(begin="deque(maxlen=8)"),
        logged("if len(self.rows) < 100:\n            self.rows.append(values)"),
        logged("self.rows[step % 10] = values", begin="[None] * 10"),
        logged("self.last = values"),
        logged().replace("out=out", "loss=out"),
        logged().replace("logger.log(step, out=out)", "seen.update(out)").replace("def log", "def update"),  # of a set
        CALLBACKS.format(kept="float(outputs['loss'])"),
        CALLBACKS.format(kept="batch"),  # which is none of what the line makes
        HOOKS.format(store="self.seen[name] = output"),
        logged("for name, value in values.items():\n            self.rows[name] = value", begin="{}"),
        HOOKS.format(store="self.seen[name].append(output.norm().item())"),
        CACHED.format(cache="lru_cache(maxsize=8)"),
        CACHED.format(cache="property"),
        REPLAY.format(store="self.items.append(args)\n        self.items = self.items[-9:]"),
        REPLAY.format(store="self.items[self.place] = args\n        self.place = (self.place + 1) % self.size"),
        QUEUE.format(queue="queue.Queue(8)"),
        QUEUE.format(queue="queue.Queue(maxsize=depth)"),
    ],
)
def test_nothing_is_named_where_it_is_let_go(source: str, tmp_path: Path) -> None:
    """Numbers, what is emptied by anybody, what has a bound, and what only the last one stays of."""
    assert found(tmp_path, source) is None


def test_of_two_places_none_is_named(tmp_path: Path) -> None:
    """Either may be the one that matters."""
    source = logged("self.rows.append(values)\n        self.more.append(values)")
    assert found(tmp_path, source.replace("self.rows = []", "self.rows, self.more = [], []")) is None


@pytest.mark.parametrize(
    ("source", "most"),
    [
        (logged(begin="deque(maxlen=8000)"), 8000),
        (
            logged(
                "self.rows.append(values)\n        if len(self.rows) > LIMIT:\n            self.rows.pop(0)"
            ).replace("class Logger", "LIMIT = 5000\nclass Logger"),
            5000,
        ),
        (logged("if len(self.rows) < 700:\n            self.rows.append(values)"), 700),
        (logged(), None),
        (logged(begin="deque(maxlen=size)"), None),  # which is not known
        (logged(begin="deque(maxlen=8000)", passed="out.mean().item()"), None),
    ],
)
def test_buffer_is_told_with_how_many_it_keeps(source: str, most: int | None, tmp_path: Path) -> None:
    """Of a deque, and of a list whose length is asked for."""
    result = buffer(tmp_path, source)
    assert (result.most if result is not None else None) == most


KEEPS = (
    "class Log:\n    def __init__(self):\n        self.rows = []\n"
    "    def {name}(self, x):\n        self.rows.append(x)\n"
)
ROUNDS = "for x in loader:\n    out = model(x)  # made\n    "


@pytest.mark.parametrize(
    "source",
    [
        "import wandb\n" + KEEPS.format(name="log") + ROUNDS + "wandb.log(out)\n",
        KEEPS.format(name="add_image") + "writer = SummaryWriter()\n" + ROUNDS + "writer.add_image(out)\n",
        KEEPS.format(name="save") + ROUNDS + "save(out)\n",
        KEEPS.format(name="log")
        + "class Net(Module):\n    def log(self, x):\n        pass\n    def training_step(self, x):\n"
        + "        out = self.net(x)  # made\n        self.log(out)\n",
        KEEPS.format(name="push") + "log = Log()\n" + ROUNDS + "log.push(out)\nlog.rows = []\n",
        KEEPS.format(name="push") + "log = Log()\n" + ROUNDS + "log.push(out)\nlog.rows[:] = []\n",
        KEEPS.format(name="push") + ROUNDS + "log = Log()\n    log.push(out)\n",
        KEEPS.format(name="push") + "log = Log()\n" + ROUNDS + "out = out.argmax(1)\n    log.push(out)\n",
        "from queue import Queue\nq = Queue()\n" + ROUNDS + "while q.qsize() > 8:\n        wait()\n    q.put(out)\n",
        (
            "seen = []\ndef tap(module, given, output):\n    seen.append(output)\nhead.register_forward_hook(tap)\n"
            "for x in loader:\n    loss = model(x)\n    loss.backward()  # made\n"
        ),
        (
            "seen = []\ndef tap(module, given, output):\n    seen.append(output)\nhead.register_forward_hook(tap)\n"
            "import torch\ndata = [torch.rand(9) for _ in range(9)]  # made\n"
        ),
        (
            "class Keep:\n    def put(self, phase, x):\n        self.last[phase] = x\nkeep = Keep()\n"
            "for phase in ('train', 'val'):\n    out = model(x)  # made\n    keep.put(phase, out)\n"
        ),
    ],
)
def test_other_objects_and_what_begins_anew_keep_nothing(source: str, tmp_path: Path) -> None:
    """A function of that name elsewhere, a list that is emptied from outside, gradients beside a hook."""
    assert found(tmp_path, source) is None


def test_function_of_the_name_of_what_it_calls_is_followed_once(tmp_path: Path) -> None:
    """Functions that return what they call in turn have no end."""
    source = "import torch\ndef load(path):\n    return torch.load(path)  # made\n"
    assert found(tmp_path, source) is None
    source = "def load(path):\n    return again(path)  # made\ndef again(path):\n    return load(path)\n"
    assert found(tmp_path, source) is None


@pytest.mark.parametrize(("length", "named"), [("list of 0", False), ("list of 1", False), ("list of 40", True)])
def test_container_with_hardly_anything_is_not_what_piled_up(length: str, named: bool, tmp_path: Path) -> None:
    """Then it is what one batch needs in all layers."""
    snapshot, frame = _place(tmp_path, "outs = []\n" + ROUNDS + "outs.append(out.detach())\n")
    told = SimpleNamespace(variables=[SimpleNamespace(name="outs", value=length)], outer=None)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot), exception=told)
    assert (keeper(view, Holding(frame, 40, 1 << 30)) is not None) == named
