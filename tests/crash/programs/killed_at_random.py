"""Children that train without a pause, each killed by SIGKILL at a random moment: killed_at_random.py SEED COUNT."""

import os
import random
import signal
import sys
import time

import torch

SIZES = (100, 1000, 10_000, 100_000)


def train_forever(generator):
    kept = []
    while True:
        weights = torch.ones(generator.choice(SIZES), requires_grad=True)
        (weights * 2).sin().sum().backward()
        kept.append(weights.grad)
        if len(kept) > 50:
            kept = kept[25:]


generator = random.Random(int(sys.argv[1]))
moments = [generator.uniform(0, 0.15) for _ in range(int(sys.argv[2]))]
torch.set_num_threads(1)
for number, moment in enumerate(moments):
    pid = os.fork()
    if pid == 0:
        train_forever(random.Random(number))
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    print(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os._exit(0)
