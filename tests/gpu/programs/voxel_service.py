"""Answer occupancy queries from a worker thread."""

from __future__ import annotations

import queue
import threading

import torch

SHAPE = (96, 160, 160)


class OccupancyGrid:
    """A dense grid that is queried by integer coordinates."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.depth, self.height, self.width = shape
        self.cells = torch.rand(shape, device="cuda")

    def lookup(self, points: torch.Tensor) -> torch.Tensor:
        """Return the occupancy at (z, y, x) points."""
        z, y, x = points.unbind(dim=1)
        flat = (x * self.height + y) * self.width + z
        return torch.take(self.cells, flat)


def serve(grid: OccupancyGrid, requests: queue.Queue, answers: queue.Queue) -> None:
    """Answer requests until the end marker comes."""
    while (points := requests.get()) is not None:
        try:
            occupied = grid.lookup(points.cuda())
            answers.put(occupied.cpu())
        except RuntimeError as error:
            answers.put(error)
            return


def ask(points: torch.Tensor, requests: queue.Queue, answers: queue.Queue) -> torch.Tensor:
    """Send one request and wait for its answer."""
    requests.put(points)
    answer = answers.get()
    if isinstance(answer, Exception):
        raise answer
    return answer


def main() -> None:
    """Query the grid along its diagonal and at its far side."""
    grid = OccupancyGrid(SHAPE)
    requests: queue.Queue = queue.Queue()
    answers: queue.Queue = queue.Queue()
    worker = threading.Thread(target=serve, args=(grid, requests, answers), name="occupancy", daemon=True)
    worker.start()
    steps = torch.arange(64)
    near = torch.stack((steps, steps, steps), dim=1)
    print("near", ask(near, requests, answers).mean().item())
    far = torch.stack((steps, steps + 90, steps + 90), dim=1)
    print("far", ask(far, requests, answers).mean().item())
    requests.put(None)
    worker.join()


if __name__ == "__main__":
    main()
