"""Closes every descriptor that it did not open, as daemons do, allocates on many threads, and reads through null."""

import ctypes
import os
import threading

import torch

os.closerange(3, 4096)
os.chdir("/")
os.environ.clear()
kept = []


def allocate(number):
    for index in range(200):
        tensor = torch.empty(1000 + number, requires_grad=True)
        (tensor * 2).sum().backward()
        if index % 20 == 0:
            kept.append(tensor)


threads = [threading.Thread(target=allocate, args=(number,)) for number in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.string_at(0)
