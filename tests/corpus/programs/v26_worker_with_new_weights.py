import time

import torch
import torch.multiprocessing as mp
from torch import nn


def predict(index, version, requests, results):
    torch.set_num_threads(1)
    torch.manual_seed(version)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    while True:
        number, inputs = requests.get()
        with torch.no_grad():
            results.put((number, index, model(torch.tensor(inputs)).argmax().item()))


class Streamer:
    def __init__(self, count):
        self.requests = mp.Queue()
        self.results = mp.Queue()
        self.workers = []
        for index in range(count):
            self.workers.append(self.start(index, version=0))

    def start(self, index, version):
        worker = mp.Process(target=predict, args=(index, version, self.requests, self.results), daemon=True)
        worker.start()
        time.sleep(1)
        return worker

    def replace(self, index, version):
        self.workers[index].kill()
        self.workers[index].join()
        self.workers[index] = self.start(index, version)

    def submit(self, batch):
        for number, inputs in enumerate(batch):
            self.requests.put((number, inputs))
        answers = {}
        while len(answers) < len(batch):
            number, index, label = self.results.get()
            answers[number] = label
        return [answers[number] for number in range(len(batch))]


def main():
    streamer = Streamer(count=2)
    batch = torch.randn(8, 32, generator=torch.Generator().manual_seed(0)).tolist()
    streamer.replace(0, version=1)
    print("replaced worker 0", flush=True)
    print(streamer.submit(batch), flush=True)
    streamer.replace(1, version=1)
    print(streamer.submit(batch), flush=True)


if __name__ == "__main__":
    main()
