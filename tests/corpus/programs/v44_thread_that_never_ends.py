# mlbench/mlbench-core#26, GestaltCogTeam/BasicTS#250: training is done and the process does not end
import queue
import threading

import torch

scalars = queue.Queue()


def write_scalars():
    while True:
        step, value = scalars.get()
        print(step, value)


def train():
    for step in range(5):
        scalars.put((step, float(torch.randn(8).mean())))


writer = threading.Thread(target=write_scalars, name="tensorboard-writer")
writer.start()
train()
print("training finished")
