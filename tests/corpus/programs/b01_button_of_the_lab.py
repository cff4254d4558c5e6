import os
import signal
import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TrainingController:
    def __init__(self):
        self.should_stop = False
        if dist.get_rank() == 0:
            signal.signal(signal.SIGUSR1, self.on_stop)

    def on_stop(self, signum, frame):
        print("stop requested, finishing after this batch", flush=True)
        self.should_stop = True

    def on_train_batch_end(self):
        dist.barrier()


def press_stop_button(after):
    threading.Timer(after, os.kill, args=(os.getpid(), signal.SIGUSR1)).start()


def fit(model, controller, max_steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(max_steps):
        frames, keypoints = torch.randn(4, 1, 32, 32), torch.randn(4, 10)
        loss = nn.functional.mse_loss(model(frames), keypoints)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        controller.on_train_batch_end()
        if controller.should_stop:
            break
    return step


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 10)))
    controller = TrainingController()
    if dist.get_rank() == 0:
        press_stop_button(after=2.0)
    last_step = fit(model, controller, max_steps=1_000_000)
    if dist.get_rank() == 0:
        print(f"stopped at step {last_step}", flush=True)
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, last_step)
    if dist.get_rank() == 0:
        print("steps of the ranks", steps, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
