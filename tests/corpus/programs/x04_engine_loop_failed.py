# vllm-project/vllm#5901: the engine's background task has failed, and requests wait for it
import asyncio

import torch


class Engine:
    def __init__(self):
        self.requests = asyncio.Queue()
        self.slots = torch.zeros(4, 8)

    async def run_engine_loop(self):
        slot = 0
        while True:
            prompt, answer = await self.requests.get()
            self.slots[slot] = prompt
            answer.set_result(self.slots.sum().item())
            slot += 1

    async def generate(self, prompt):
        answer = asyncio.get_running_loop().create_future()
        await self.requests.put((prompt, answer))
        return await answer


async def serve():
    engine = Engine()
    loop = asyncio.create_task(engine.run_engine_loop())
    for number in range(10):
        print(number, await engine.generate(torch.rand(8)))
    loop.cancel()


asyncio.run(serve())
