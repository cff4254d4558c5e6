# pytorch/pytorch#65418
import time

import torch
import torch.multiprocessing as mp


def produce(queue):
    for i in range(5):
        queue.put(torch.full((3, 5), float(i)))


if __name__ == "__main__":
    queue = mp.Queue()
    producer = mp.Process(target=produce, args=(queue,), daemon=True)
    producer.start()
    time.sleep(4)
    for _ in range(5):
        print(queue.get().sum())
