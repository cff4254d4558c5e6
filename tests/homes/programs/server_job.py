"""A server of models: an API process, and engine cores in child processes whose deaths it does not notice.

The shape is that of vLLM's: requests and answers go through queues, each core is a rank of its tensor-parallel group.
"""

import asyncio
import contextlib
import multiprocessing
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import training
from fastapi import FastAPI

DEATH = os.environ["HOMES_DEATH"]


def engine_core(rank: int, store: str, requests, answers) -> None:
    """One rank: a batch for each request."""
    import torch.distributed as dist

    multiprocessing.current_process().name = f"EngineCore_{rank}"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    while requests.get() is not None:
        answers.put(training.train_rank(DEATH, rank))


class Engine:
    """The API server's half."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.requests = [spawn.Queue() for _ in range(2)]
        self.answers = spawn.Queue()
        store = str(Path(os.environ["HOMES_WORK"], f"store.{os.getpid()}"))
        self.cores = [
            spawn.Process(target=engine_core, args=(rank, store, self.requests[rank], self.answers), daemon=True)
            for rank in range(2)
        ]
        for core in self.cores:
            core.start()

    def generate(self) -> float:
        for requests in self.requests:
            requests.put("prompt")
        return sorted(self.answers.get() for _ in self.cores)[0]

    def stop(self) -> None:
        for requests in self.requests:
            requests.put(None)
        for core in self.cores:
            core.join()


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.engine = None
    yield
    if app.state.engine is not None:
        app.state.engine.stop()


app = FastAPI(lifespan=lifespan)


@app.get("/generate")
async def generate() -> dict[str, str]:
    if DEATH == "worker":
        training.decode(4)
    if app.state.engine is None:
        app.state.engine = Engine()
    loss = await asyncio.get_running_loop().run_in_executor(None, app.state.engine.generate)
    return {"loss": f"{loss:.4f}"}
