# python/cpython#73983, pytorch/pytorch#35660
import numpy as np
import torch
import torch.multiprocessing as mp


def evaluate(shard, results):
    scores = torch.randn(400, 400).softmax(-1)
    results.put((shard, scores.numpy()))


if __name__ == "__main__":
    spawn = mp.get_context("spawn")
    results = spawn.Queue()
    workers = [spawn.Process(target=evaluate, args=(i, results)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(np.mean([results.get()[1].mean() for _ in workers]))
