import argparse
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch

ROWS, DIM = 20000, 64


def evaluate(name, task):
    shm = SharedMemory(name=name)
    vectors = np.ndarray((ROWS, DIM), dtype=np.float32, buffer=shm.buf)
    generator = torch.Generator().manual_seed(len(task))
    pairs = torch.randint(0, ROWS, (1000, 2), generator=generator).numpy()
    first, second = torch.from_numpy(vectors[pairs[:, 0]]), torch.from_numpy(vectors[pairs[:, 1]])
    print(f"{task}: {torch.cosine_similarity(first, second).mean().item():.5f}", flush=True)
    del vectors
    shm.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors")
    parser.add_argument("--task")
    args = parser.parse_args()
    if args.vectors:
        evaluate(args.vectors, args.task)
        return

    shm = SharedMemory(create=True, size=ROWS * DIM * 4)
    vectors = np.ndarray((ROWS, DIM), dtype=np.float32, buffer=shm.buf)
    vectors[:] = np.random.default_rng(0).normal(size=(ROWS, DIM))
    for task in ("wordsim", "analogies", "synonyms"):
        subprocess.run([sys.executable, __file__, "--vectors", shm.name, "--task", task], check=True)
    del vectors
    shm.close()
    shm.unlink()


if __name__ == "__main__":
    main()
