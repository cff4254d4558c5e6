"""Smooth a land-cover raster with a convolution, tile rows spread over worker processes."""
import argparse
import time
from multiprocessing import Process, Queue

import numpy as np
import torch
import torch.nn.functional as F


class RasterLayer:
    def __init__(self, data, block=64):
        self.data = data
        self.block = block

    @property
    def window(self):
        return self.data.shape

    def read_rows(self, start, pad):
        stop = min(start + self.block, self.data.shape[0])
        padded = np.pad(self.data, ((pad, pad), (pad, pad)), mode="edge")
        return padded[start:stop + 2 * pad]


class ConvOperation:
    def __init__(self, layer, weights):
        self.layer = layer
        self.weights = torch.from_numpy(weights)[None, None]
        self.pad = weights.shape[0] // 2

    def eval_rows(self, start):
        chunk = torch.from_numpy(self.layer.read_rows(start, self.pad))[None, None]
        return F.conv2d(chunk, self.weights)[0, 0].numpy()

    def sum(self):
        rows = range(0, self.layer.window[0], self.layer.block)
        return float(sum(self.eval_rows(r).sum() for r in rows))

    def save(self, out):
        for start in range(0, self.layer.window[0], self.layer.block):
            result = self.eval_rows(start)
            out[start:start + len(result)] = result

    def _worker(self, jobs, results):
        while True:
            start = jobs.get()
            if start is None:
                return
            results.put((start, self.eval_rows(start)))

    def parallel_save(self, out, parallelism):
        jobs, results = Queue(), Queue()
        starts = list(range(0, self.layer.window[0], self.layer.block))
        workers = [Process(target=self._worker, args=(jobs, results)) for _ in range(parallelism)]
        for worker in workers:
            worker.start()
        for start in starts:
            jobs.put(start)
        for _ in workers:
            jobs.put(None)
        for _ in starts:
            start, rows = results.get()
            out[start:start + len(rows)] = rows
        for worker in workers:
            worker.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=768)
    parser.add_argument("--kernel", type=int, default=9)
    parser.add_argument("--parallelism", type=int, default=2)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    layer = RasterLayer(rng.random((args.size, args.size), dtype=np.float32))
    weights = np.full((args.kernel, args.kernel), 1.0 / args.kernel ** 2, dtype=np.float32)
    operation = ConvOperation(layer, weights)
    print(f"total {operation.sum():.1f}", flush=True)
    out = np.zeros_like(layer.data)
    begin = time.time()
    operation.parallel_save(out, args.parallelism)
    print(f"saved {out.shape} in {time.time() - begin:.1f} s, sum {out.sum():.1f}", flush=True)


if __name__ == "__main__":
    main()
