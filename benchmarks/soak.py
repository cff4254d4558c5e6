"""Does recording stay harmless for hours? Two ranks at level default; memory, size of the recording, losses, speed.

    python benchmarks/soak.py                          30 minutes
    python benchmarks/soak.py --minutes 10 --json
    python benchmarks/soak.py --pace 0.05              sleeps between steps, to leave a shared machine to others

The job is `pytracer run -- torchrun` with DDP over gloo: training steps, a DataLoader worker per rank and epoch, a
thread that starts and ends each epoch. The same job runs beside it untraced: speed is CPU time per step in undisturbed
samples, the 10th percentile, compared with the other job's in the same quarter of the time, so that load that slows
both does not count. (Alone, on cores that other machines share, steps were 18 % slower in the last quarter than in the
first, for no known reason.)
Exit status 1 when memory grew by more than 2 % between the first quarter and the last, when the recording grew there,
when something was dropped, or when steps became slower than the untraced ones by another 5 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.measuring import machine, machine_words, progress, undisturbed
from support.training import small_ddp

MOST_GROWTH, MOST_SLOWING = 1.02, 1.05
STEPS_PER_EPOCH, STEPS_PER_SAMPLE = 1000, 100
JOB = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@dataclass(frozen=True)
class Sample:
    """One sample of a rank, taken by itself."""

    seconds: float
    steps: int
    cpu_ms_per_step: float
    rss_kib: int
    box_kib: int
    descriptors: int
    threads: int


def train(minutes: float, pace: float, output: Path) -> None:
    """One rank: writes a line of JSON for each sample."""
    import threading

    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    import pytracer

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = small_ddp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randn(STEPS_PER_EPOCH * 4, 8, 32))
    started, steps, going = time.monotonic(), 0, torch.ones(1)
    with output.open("w", buffering=1, encoding="ascii") as lines:
        while going.item():
            thread = threading.Thread(target=lambda: torch.randn(64).sum())
            thread.start()
            thread.join()
            pytracer.mark(f"epoch of step {steps}")
            cpu = time.process_time()
            for (batch,) in DataLoader(data, batch_size=4, num_workers=1):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                steps += 1
                if pace:
                    time.sleep(pace)
                if steps % STEPS_PER_SAMPLE:
                    continue
                cost = (time.process_time() - cpu) * 1000 / STEPS_PER_SAMPLE
                lines.write(json.dumps(asdict(look(time.monotonic() - started, steps, cost))) + "\n")
                cpu = time.process_time()
                going[0] = float(time.monotonic() - started < minutes * 60)
                dist.broadcast(going, 0)  # both ranks end at the same step
                if not going.item():
                    break
    dist.destroy_process_group()


def look(seconds: float, steps: int, cost: float) -> Sample:
    """This process now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    boxes = Path(os.environ.get("PYTRACER_DIR", "/nowhere"), "boxes").glob(f"*.{os.getpid()}.blackbox")
    return Sample(
        seconds, steps, cost, int(status["VmRSS"].split()[0]), sum(box.stat().st_blocks // 2 for box in boxes),
        len(os.listdir("/proc/self/fd")), int(status["Threads"]),
    )  # fmt: skip


def losses(run: Path) -> dict[str, int]:
    """What the recordings of the job counted as lost, summed over its processes; zeros are left out."""
    from pytracer.decode.recording.reader import read_box

    total: dict[str, int] = {}
    for box in (run / "boxes").glob("*.blackbox"):
        for name, count in read_box(str(box)).counts.items():
            lost = "dropped" in name or "error" in name or name in ("stale_storages", "unknown_frees")
            if lost and count:
                total[name] = total.get(name, 0) + int(count)
    return total


def judge(samples: list[Sample], control: list[Sample]) -> dict[str, Any]:
    """First quarter of the time against last; the first two samples, during initialization, are left out.

    Args:
        samples: of a rank.
        control: of the same rank of the untraced job.
    """
    kept = samples[2:] if len(samples) > 6 else samples
    quarters = [_quarter(kept, at) for at in range(4)]
    ratios = [_cpu(mine) / _cpu(_quarter(control, at)) for at, mine in enumerate(quarters)]
    first, last = (statistics.median(sample.rss_kib for sample in part) for part in (quarters[0], quarters[-1]))
    return {
        "minutes": round(samples[-1].seconds / 60, 1),
        "steps": samples[-1].steps,
        "samples": len(samples),
        "rss_kib": [kept[0].rss_kib, kept[-1].rss_kib],
        "rss_ratio": last / first,
        "box_kib": [kept[0].box_kib, kept[-1].box_kib],
        "cpu_ms_per_step": [_cpu(part) for part in quarters],
        "cpu_ratios": ratios,
        "cpu_per_step_ratio": ratios[-1] / ratios[0],
        "descriptors": [kept[0].descriptors, kept[-1].descriptors],
        "threads": [kept[0].threads, kept[-1].threads],
    }


def _quarter(samples: list[Sample], at: int) -> list[Sample]:
    end = samples[-1].seconds
    return [sample for sample in samples if end * at / 4 < sample.seconds <= end * (at + 1) / 4] or samples


def _cpu(samples: list[Sample]) -> float:
    return undisturbed([sample.cpu_ms_per_step for sample in samples])


def job(words: list[str], place: Path) -> subprocess.Popen[bytes]:
    """Starts Python with those arguments; its ranks write into `place`."""
    place.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *words, str(place)], env=environment, stdout=sys.stderr)


def soak(minutes: float, pace: float) -> tuple[list[dict[str, Any]], dict[str, int], int]:
    """Runs the job twice at once, traced and untraced; verdicts by rank, losses, bytes of all recordings."""
    with tempfile.TemporaryDirectory(prefix="pytracer-soak-") as directory:
        run = Path(directory, "run")
        me = [str(Path(__file__).resolve()), "--minutes", str(minutes), "--pace", str(pace), "--rank-of"]
        before = {"traced": ["-m", "pytracer", "run", "-o", str(run), "--", sys.executable], "control": []}
        with contextlib.ExitStack() as jobs:  # waits for both, also when interrupted
            processes = [
                jobs.enter_context(job([*words, *JOB, *me], Path(directory, name))) for name, words in before.items()
            ]
            began = time.monotonic()
            while any(process.poll() is None for process in processes):
                progress(f"{(time.monotonic() - began) / 60:.1f} of {minutes:g} minutes")
                time.sleep(1)
        progress("")
        for process in processes:
            if process.returncode != 0:
                sys.exit(f"soak: a job ended with status {process.returncode}")
        verdicts = []
        for rank in range(2):
            traced, control = (_samples(Path(directory, name, f"rank{rank}.jsonl")) for name in ("traced", "control"))
            verdicts.append({"rank": rank, **judge(traced, control)})
        boxes = sum(box.stat().st_blocks * 512 for box in run.glob("boxes/*.blackbox"))
        return verdicts, losses(run), boxes


def _samples(path: Path) -> list[Sample]:
    return [Sample(**json.loads(line)) for line in path.read_text(encoding="ascii").splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description="A long job of two ranks: memory, box, losses and speed over time.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep after each step")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        train(given.minutes, given.pace, Path(given.rank_of, f"rank{os.environ['RANK']}.jsonl"))
        return 0
    verdicts, lost, boxes = soak(given.minutes, given.pace)
    document = {
        "schema": "pytracer-benchmark", "version": 2, "name": "soak", "machine": machine(),
        "rows": verdicts, "losses": lost, "boxes_bytes": boxes,
    }  # fmt: skip
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        print(machine_words(machine()))
        for row in verdicts:
            print(
                f"rank {row['rank']}: {row['minutes']} minutes, {row['steps']} steps, {row['samples']} samples; "
                f"resident {row['rss_kib'][0]} -> {row['rss_kib'][1]} KiB ({row['rss_ratio']:.4f}x by quarters); "
                f"box {row['box_kib'][0]} -> {row['box_kib'][1]} KiB; CPU per step "
                f"{' '.join(f'{ms:.3f}' for ms in row['cpu_ms_per_step'])} ms, of untraced "
                f"{' '.join(f'{ratio:.3f}x' for ratio in row['cpu_ratios'])} by quarters; descriptors "
                f"{row['descriptors'][0]} -> {row['descriptors'][1]}, threads {row['threads'][0]} -> "
                f"{row['threads'][1]}"
            )
        print(f"all boxes together: {boxes / 2**20:.1f} MiB; lost: {lost or 'nothing'}")
    good = all(
        row["rss_ratio"] <= MOST_GROWTH
        and row["cpu_per_step_ratio"] <= MOST_SLOWING
        and row["box_kib"][0] == row["box_kib"][1]
        for row in verdicts
    )
    return 0 if good and not any("dropped" in name for name in lost) else 1


if __name__ == "__main__":
    sys.exit(main())
