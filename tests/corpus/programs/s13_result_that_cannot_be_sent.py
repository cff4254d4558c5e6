"""A worker puts a result with a lambda into a queue: pickling fails in the queue's own thread, and nothing ever arrives."""

import multiprocessing

import torch


def evaluate(number, results):
    score = float(torch.full((4,), float(number)).mean())
    results.put({"score": score, "format": lambda value: f"{value:.2f}"})


def collect(count):
    results = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=evaluate, args=(number, results)) for number in range(count)]
    for worker in workers:
        worker.start()
    scores = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return scores


if __name__ == "__main__":
    print(collect(2))
