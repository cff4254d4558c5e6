# vllm-project/vllm#21443: the engine's process is killed, and its client waits for the answer
import subprocess

import torch
import torch.multiprocessing as mp


def engine(requests, answers):
    weights = torch.randn(64, 64)
    while True:
        number, prompt = requests.get()
        answers.put((number, (prompt @ weights).sum().item()))


class Client:
    def __init__(self):
        context = mp.get_context("spawn")
        self.requests, self.answers = context.Queue(), context.Queue()
        self.process = context.Process(target=engine, args=(self.requests, self.answers), daemon=True)
        self.process.start()

    def generate(self, number):
        self.requests.put((number, torch.ones(64)))
        return self.answers.get()


if __name__ == "__main__":
    client = Client()
    print(client.generate(0))
    subprocess.run(["/bin/sh", "-c", f"kill -9 {client.process.pid}"], check=True)
    print(client.generate(1))
