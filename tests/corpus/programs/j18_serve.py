import asyncio
import queue
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Request:
    features: torch.Tensor
    reply: asyncio.Future


class Scorer(nn.Module):
    def __init__(self, dim=16, classes=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, classes))

    def forward(self, x):
        return self.net(x).softmax(-1)


class BatchingServer:
    """Collects single requests and scores them together."""

    def __init__(self, model, max_batch=8):
        self.model = model.eval()
        self.max_batch = max_batch
        self.inbox = queue.Queue()
        self.served = 0

    def next_batch(self):
        batch = [self.inbox.get()]
        while len(batch) < self.max_batch:
            try:
                batch.append(self.inbox.get_nowait())
            except queue.Empty:
                break
        return batch

    @torch.inference_mode()
    def score(self, batch):
        return self.model(torch.stack([r.features for r in batch]))

    async def run(self):
        loop = asyncio.get_running_loop()
        while True:
            batch = await loop.run_in_executor(None, self.next_batch)
            scores = await loop.run_in_executor(None, self.score, batch)
            for request, row in zip(batch, scores):
                request.reply.set_result(row)
            self.served += len(batch)

    async def ask(self, features):
        reply = asyncio.get_running_loop().create_future()
        self.inbox.put(Request(features, reply))
        return await reply


async def main():
    torch.manual_seed(0)
    server = BatchingServer(Scorer())
    worker = asyncio.create_task(server.run())
    for burst in (5, 50, 20):
        answers = await asyncio.gather(*(server.ask(torch.randn(16)) for _ in range(burst)))
        print("answers", tuple(torch.stack(answers).shape), "served", server.served, flush=True)
        await asyncio.sleep(0.2)
    worker.cancel()
    try:
        await worker
    except asyncio.CancelledError:
        print("server stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
    print("bye")
