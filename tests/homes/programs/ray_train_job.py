"""Ray Train with two workers."""

import os
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

sys.path.insert(0, str(Path(__file__).parent))


def loop(config):
    import ray.train
    import torch.distributed as dist
    import training

    loss = training.train_rank(config["death"], ray.train.get_context().get_world_rank())
    if dist.get_rank() == 0:
        Path(os.environ["HOMES_WORK"], "loss").write_text(f"loss {loss:.4f}")


def main(death: str) -> None:
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
    )  # fmt: skip
    trainer = TorchTrainer(
        loop, train_loop_config={"death": death}, scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=os.environ["HOMES_WORK"]),
    )  # fmt: skip
    trainer.fit()
    print(Path(os.environ["HOMES_WORK"], "loss").read_text())


if __name__ == "__main__":
    main(sys.argv[1])
