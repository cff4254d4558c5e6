"""Ray tasks and actors: an actor that trains, and tasks that prepare its data."""

import os
import sys
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).parent))
import training


@ray.remote
class Learner:
    """An actor with a rank."""

    def __init__(self, rank: int, store: str) -> None:
        self.rank, self.store = rank, store

    def fit(self, death: str) -> float:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{self.store}", rank=self.rank, world_size=2)
        return training.train_rank(death, self.rank)


@ray.remote(max_retries=0)
def prepare(death: str, shard: int) -> int:
    """A task."""
    if death == "worker" and shard == 1:
        training.decode(shard)
    return shard


def main(death: str) -> None:
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
    )  # fmt: skip
    ray.get([prepare.remote(death, shard) for shard in range(2)])
    store = str(Path(os.environ["HOMES_WORK"], "store"))
    learners = [Learner.remote(rank, store) for rank in range(2)]
    losses = ray.get([learner.fit.remote(death) for learner in learners])
    print(f"loss {losses[0]:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
