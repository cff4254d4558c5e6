from multiprocessing.shared_memory import SharedMemory
import numpy as np
import torch
import torch.multiprocessing as mp


class FrameBlock:
    """Frames that several processes see; only the name goes through the queue."""

    def __init__(self, shape):
        self.shape = tuple(shape)
        self.memory = SharedMemory(create=True, size=int(np.prod(shape)) * 4)
        self.name = self.memory.name

    def fill(self, seed):
        rng = np.random.default_rng(seed)
        view = np.ndarray(self.shape, dtype=np.float32, buffer=self.memory.buf)
        view[:] = rng.random(self.shape, dtype=np.float32)

    def free(self):
        self.memory.close()
        self.memory.unlink()


def attach(name, shape):
    block = SharedMemory(name=name)
    return torch.frombuffer(block.buf, dtype=torch.float32, count=int(np.prod(shape))).view(shape)


def describe(inbox, outbox):
    torch.set_num_threads(1)
    while True:
        job = inbox.get()
        if job is None:
            break
        frames = attach(*job)
        outbox.put((float(frames.mean()), float(frames.std())))


def main():
    block = FrameBlock((30, 3, 240, 320))
    block.fill(seed=1)
    inbox, outbox = mp.SimpleQueue(), mp.SimpleQueue()
    worker = mp.Process(target=describe, args=(inbox, outbox))
    worker.start()
    inbox.put((block.name, block.shape))
    inbox.put(None)
    worker.join()
    block.free()
    if worker.exitcode != 0:
        raise RuntimeError(f"the worker ended with {worker.exitcode}")
    print("mean, std:", outbox.get())


if __name__ == "__main__":
    main()
