"""Records tasks and actors of a Ray cluster by a runtime environment; a task and an actor of this program die.

    python examples/ray_runtime_env.py            # in a new directory: the recordings lie in ray-run/
    pytracer inspect ray-run

A Ray that the program starts itself needs none of this: `pytracer run -- python program.py` records its workers. On
a cluster, pytracer must be installed at the same place on all nodes, and ray-run/ is on each of them.
"""

import ctypes
import os

import ray

import pytracer

PRELOADED = os.path.join(os.path.dirname(pytracer.__file__), "libpytracer_core.so")
RUN = os.path.abspath("ray-run")


@ray.remote(max_retries=0)
def count(text: str) -> int:
    """A task that reads through a null pointer."""
    return len(ctypes.string_at(0)) + len(text)


@ray.remote
class Trainer:
    """An actor that does so in a method."""

    def step(self) -> int:
        """A training step."""
        return len(ctypes.string_at(0))


if __name__ == "__main__":
    ray.init(num_cpus=2, runtime_env={"env_vars": {"LD_PRELOAD": PRELOADED, "PYTRACER_DIR": RUN}})
    for work in (count.remote("words"), Trainer.remote().step.remote()):
        try:
            ray.get(work)
        except ray.exceptions.RayError as error:
            print(type(error).__name__, flush=True)
