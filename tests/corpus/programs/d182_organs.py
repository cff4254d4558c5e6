import argparse
import logging
import multiprocessing as mp
import queue
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("organs")

PATCH = (32, 64, 64)
SPACING_RATIO = 1.5


def write_cases(folder, n_cases, seed=3):
    rng = np.random.default_rng(seed)
    for i in range(n_cases):
        volume = rng.normal(size=(64, 112, 112)).astype(np.float16)
        center = rng.integers(24, 40, size=3)
        volume[center[0] - 12:center[0] + 12, center[1] - 20:center[1] + 20, center[2] - 20:center[2] + 20] += 2
        np.savez_compressed(folder / f"organ_{i:03d}.npz", data=volume, label=np.uint8(i % 3))


def resample_slice(plane):
    plane = torch.from_numpy(plane.astype(np.float32))[None, None]
    plane = F.interpolate(plane, scale_factor=SPACING_RATIO, mode="bicubic", align_corners=False)
    plane = F.avg_pool2d(F.pad(plane, (2, 2, 2, 2), mode="reflect"), 5, stride=1)
    return plane[0, 0].numpy()


def unpack_case(npz_file):
    npz_file = Path(npz_file)
    volume = np.load(npz_file)["data"]
    side = int(volume.shape[1] * SPACING_RATIO)
    header = {"descr": "<f4", "fortran_order": False, "shape": (volume.shape[0], side, side)}
    with open(npz_file.with_suffix(".npy"), "wb", buffering=0) as f:
        np.lib.format.write_array_header_1_0(f, header)
        for plane in volume:
            f.write(resample_slice(plane).tobytes())
    return npz_file.stem


def unpack_dataset(folder, processes):
    files = sorted(str(p) for p in folder.glob("*.npz"))
    with mp.Pool(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for name in pool.imap(unpack_case, files):
            log.info("unpacked %s", name)


class PatchLoader:
    def __init__(self, folder, batch_size, seed):
        self.files = sorted(folder.glob("*.npz"))
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def load_case(self, npz_file):
        npy_file = npz_file.with_suffix(".npy")
        label = int(np.load(npz_file)["label"])
        if npy_file.is_file():
            return np.load(npy_file, "r"), label
        packed = np.load(npz_file)["data"]
        return np.stack([resample_slice(p) for p in packed]), label

    def generate_train_batch(self):
        data, target = [], []
        for npz_file in self.rng.choice(self.files, self.batch_size):
            volume, label = self.load_case(npz_file)
            at = [int(self.rng.integers(0, s - p + 1)) for s, p in zip(volume.shape, PATCH)]
            patch = np.array(volume[tuple(slice(a, a + p) for a, p in zip(at, PATCH))])
            data.append((patch - patch.mean()) / (patch.std() + 1e-6))
            target.append(label)
        return np.stack(data)[:, None], np.asarray(target)


def producer(loader, out, worker_id, abort_event):
    torch.set_num_threads(1)
    try:
        while not abort_event.is_set():
            out.put(loader.generate_train_batch())
    except Exception:
        print(f"Exception in background worker {worker_id}:", flush=True)
        traceback.print_exc()
        abort_event.set()


class BackgroundAugmenter:
    def __init__(self, folder, batch_size, num_processes, num_cached):
        self.abort_event = mp.Event()
        self.queue = mp.Queue(num_cached)
        self.processes = [mp.Process(target=producer, args=(PatchLoader(folder, batch_size, 100 + i), self.queue, i, self.abort_event), daemon=True)
                          for i in range(num_processes)]
        for p in self.processes:
            p.start()

    def __next__(self):
        while True:
            if self.abort_event.is_set() or not all(p.is_alive() for p in self.processes):
                raise RuntimeError("One or more background workers are no longer alive. Exiting. Please check the print statements above for the actual error message")
            try:
                return self.queue.get(timeout=0.2)
            except queue.Empty:
                time.sleep(0.02)

    def close(self):
        self.abort_event.set()
        for p in self.processes:
            p.terminate()
            p.join()


class Trainer:
    def __init__(self, folder, args):
        self.folder, self.args = folder, args

    def initialize(self):
        self.network = nn.Sequential(nn.Conv3d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv3d(8, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-2, momentum=0.99, nesterov=True)
        self.batches = BackgroundAugmenter(self.folder, self.args.batch_size, self.args.workers, num_cached=24)

    def run_training(self):
        self.initialize()
        log.info("unpacking dataset...")
        unpack_dataset(self.folder, processes=1)
        log.info("unpacking done")
        for epoch in range(self.args.epochs):
            losses = []
            for _ in range(self.args.iterations):
                data, target = next(self.batches)
                loss = F.cross_entropy(self.network(torch.from_numpy(data)), torch.from_numpy(target))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
            log.info("epoch %d train_loss %.4f", epoch, np.mean(losses))
        self.batches.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        write_cases(folder, args.cases)
        Trainer(folder, args).run_training()
        log.info("finished")


if __name__ == "__main__":
    main()
