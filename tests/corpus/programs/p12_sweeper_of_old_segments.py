import glob
import os
import time
from multiprocessing import parent_process
import torch
import torch.multiprocessing as mp

mp.set_sharing_strategy("file_system")
SHOTS, DIM = 4000, 512


def sweep(prefix, older_than, stop):
    """Gives the memory of forgotten segments back."""
    while parent_process().is_alive() and not stop.is_set():
        now = time.time()
        for path in glob.glob(prefix + "*"):
            if now - os.stat(path).st_mtime > older_than:
                os.truncate(path, 0)
        time.sleep(0.3)


def sampler(memory, filled, stop):
    torch.set_num_threads(1)
    while parent_process().is_alive() and not stop.is_set():
        i = int(torch.randint(0, SHOTS, (1,)))
        memory[i] = torch.randn(DIM)
        filled[i] = 1
        time.sleep(0.01)


def main():
    memory = torch.zeros(SHOTS, DIM).share_memory_()
    filled = torch.zeros(SHOTS, dtype=torch.int32).share_memory_()
    ctx = mp.get_context("spawn")
    stop = ctx.Event()
    workers = [ctx.Process(target=sampler, args=(memory, filled, stop), daemon=True)]
    workers.append(ctx.Process(target=sweep, args=(f"/dev/shm/torch_{os.getpid()}_", 8.0, stop), daemon=True))
    for w in workers:
        w.start()
    model = torch.nn.Linear(DIM, DIM)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(400):
        rows = torch.randint(0, SHOTS, (256,))
        x = memory[rows] * filled[rows].unsqueeze(1)
        loss = (model(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print("step", step, "filled", int(filled.sum()), flush=True)
        time.sleep(0.05)
    stop.set()


if __name__ == "__main__":
    main()
