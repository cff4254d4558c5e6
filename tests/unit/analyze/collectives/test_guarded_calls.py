"""A function that a rank has called once less: the call of it that stands below a condition; and look-alikes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.guarded_calls import guarded_call
from pytracer.report.job import PythonFrame

PROGRAM = """\
class MeanMetric:
    def compute(self):
        dist.barrier()
class Trainer:
    def __init__(self, world, every, counts, with_iou=True, scheduler=None):
        self.every, self.seen, self.counts = every, [], counts
        self.with_iou = with_iou
        self.scheduler = scheduler
    def validate(self, loader, epoch):
        metrics = {{}}
        for number in range(3):
            pass
        {guard}
            metrics["iou"] = self.iou.compute()
        {call}
        {behind}
    def run(self):
        {run}
"""
AT = (("Trainer.run", 18), ("Trainer.validate", 15), ("MeanMetric.compute", 3))
CALL, RUN = 'metrics["recall"] = self.recall.compute()', "self.validate(loader, 3)"


def found_in(
    folder: Path,
    guard: str,
    behind: str = "pass",
    at: tuple[tuple[str, int], ...] = AT,
    *,
    call: str = CALL,
    run: str = RUN,
) -> Any:
    """With a rank in compute(), which line 15 called."""
    file = folder / "train.py"
    file.write_text(PROGRAM.format(guard=guard, behind=behind, call=call, run=run), encoding="utf-8")
    way = [PythonFrame(function=function, file=str(file), line=line) for function, line in at]
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, threads=(), pid=1)
    return guarded_call(SimpleNamespace(process=SimpleNamespace(snapshot=snapshot)), way, str(file))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "guard",
    [
        "if self.iou.count > 0:",
        "if crowns.any():",
        "if epoch > 1 and self.iou.seen:",
        "if self.seen:",
        "if self.counts:",
        "if self.counts[self.rank]:",
        "if len(loader) > 0:",
        "if self.rank == 0:",
        "if self.bad_steps > 0:",
    ],
)
def test_call_below_a_condition_of_the_rank_is_the_one(guard: str, tmp_path: Path) -> None:
    """It asks what each rank has for itself."""
    found = found_in(tmp_path, guard)
    assert found is not None
    assert found.subject("rank 1") == (
        f"rank 1 has called compute() less often; line 14, which calls it only where `{guard[3:-1]}` holds (line 13), "
        "may have left it out"
    )
    assert f"see whether line 13 (`{guard}`) came out differently on rank 1" in found.advice("rank 1", "said")


@pytest.mark.parametrize(
    ("guard", "behind", "at"),
    [
        ("if epoch % 5 == 0:", "pass", AT),  # the same on all ranks
        ("if self.args.with_iou:", "pass", AT),
        ("if number == 2:", "pass", AT),
        ("if True:", "pass", AT),
        ("with self.timer:", "pass", AT),
        ("with self.timer:", "self.last.compute() if self.last.count else None", AT),  # behind it, in another round
        ("if self.iou.count > 0:", "pass", (AT[0], ("Trainer.validate", 14), AT[2])),  # the rank is in that one
    ],
)
def test_other_calls_explain_nothing(guard: str, behind: str, at: tuple[tuple[str, int], ...], tmp_path: Path) -> None:
    """All ranks decide alike, or it comes later."""
    assert found_in(tmp_path, guard, behind, at) is None


@pytest.mark.parametrize(
    "test",
    [
        "self.world > 1",
        "world_size > 1",
        "dist.is_initialized()",
        "dist.get_world_size() > 1",
        "dist.is_available() and dist.is_initialized()",
        "torch.cuda.is_available()",
        "torch.cuda.device_count() > 1",
        "self.training",
        "self.model.training",
        "DISTRIBUTED",
        "SYNC_EVERY > 1",
        "FLAGS.sync",
        "self.args.sync",
        "self.cfg['sync']",
        "current_epoch > 0",
        "self.epoch % 2 == 0",
        "batch_idx % 10 == 0",
        "number % self.every == 0",
        "isinstance(self.model, DDP)",
        "not os.environ.get('NOSYNC')",
        "os.environ['SYNC'] == '1'",
        "os.getenv('SYNC', '0') == '1'",
        "self.with_iou",
        "self.is_distributed",
        "self.scheduler is not None",
        "local_rank != -1",
        "__debug__",
        "epoch >= 2 and (self.training or not self.args.quick)",
    ],
)
def test_condition_that_is_the_same_on_all_ranks_explains_nothing(test: str, tmp_path: Path) -> None:
    """Rounds, options, constants, the environment, types, and how many ranks there are."""
    assert found_in(tmp_path, f"if {test}:") is None


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"call": f"with suppress(KeyError): {CALL}"}, None),
        ({"call": "metrics |= {k: self.recall.compute() for k in names if k in metrics}"}, None),
        ({"call": "metrics['r'] = self.recall.compute() if metrics else None"}, None),
        ({"run": f"with contextlib.suppress(KeyError):\n            {RUN}"}, 19),
        ({"run": f"try:\n            {RUN}\n        except KeyError:\n            log()"}, 19),
        ({"run": f"try:\n            {RUN}\n        except KeyError:\n            return"}, 19),
        ({"call": f"if crowns.any():\n            {CALL}"}, 16),
    ],
)
def test_call_that_an_error_may_have_left_out_itself(change: dict[str, str], at: int | None, tmp_path: Path) -> None:
    """Or a condition of its own."""
    run = ("Trainer.run", at if at is not None and "run" in change else 18)
    line = at if at is not None and "call" in change else 15
    way = (("Trainer.run", 19) if line == 16 else run, ("Trainer.validate", line), AT[2])
    assert found_in(tmp_path, "if self.iou.count > 0:", at=way, **change) is None


@pytest.mark.parametrize(
    "run",
    [
        f"try:\n            {RUN}\n        except KeyError:\n            raise",
        f"try:\n            {RUN}\n        except KeyboardInterrupt:\n            pass",
        f"try:\n            {RUN}\n        finally:\n            log()",
        f"try:\n            {RUN}\n        except KeyError:\n            sys.exit(1)",
        f"with self.timer:\n            {RUN}",
    ],
)
def test_handler_that_ends_the_rank_leaves_out_nothing(run: str, tmp_path: Path) -> None:
    """The other rank would have ended, too."""
    assert found_in(tmp_path, "if crowns.any():", at=(("Trainer.run", 19), *AT[1:]), run=run) is not None


def test_call_in_the_else_of_a_condition_is_not_said_to_be_below_it(tmp_path: Path) -> None:
    """It runs where that does not hold."""
    guard = "if crowns.any():\n            pass\n        else:"
    at = (("Trainer.run", 20), ("Trainer.validate", 17), AT[2])
    assert found_in(tmp_path, guard, at=at) is None
