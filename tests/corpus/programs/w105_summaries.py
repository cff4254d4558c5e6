"""Serve a small summariser from a supervised worker process and push a folder of documents through it."""
import argparse
import multiprocessing as mp
import os
import signal
import time

import torch
import torch.nn as nn


class Summariser(nn.Module):
    def __init__(self, vocab=2000, dim=384):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.cell = nn.GRUCell(dim, dim)
        self.out = nn.Linear(dim, vocab)

    @torch.no_grad()
    def generate(self, tokens, limit):
        _, h = self.encoder(self.embed(tokens[:, -4096:]))
        h = h[0]
        last = tokens[:, -1]
        produced = []
        for _ in range(limit):
            h = self.cell(self.embed(last), h)
            last = self.out(h).argmax(-1)
            produced.append(last)
        return torch.stack(produced, 1)


def worker_main(conn, beat, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Summariser().eval()
    beat.value = time.monotonic()
    conn.send("ready")
    while True:
        beat.value = time.monotonic()
        if not conn.poll(0.2):
            continue
        job = conn.recv()
        if job is None:
            break
        tokens = torch.tensor([job["tokens"]])
        summary = model.generate(tokens, limit=len(job["tokens"]) // job["ratio"])
        conn.send({"name": job["name"], "length": summary.shape[1]})


class Supervisor:
    def __init__(self, timeout):
        self.timeout = timeout
        self.ctx = mp.get_context("spawn")
        self.boot()

    def log(self, level, text):
        print(f"[{os.getpid()}] [{level}] {text}", flush=True)

    def boot(self):
        self.beat = self.ctx.Value("d", 0.0)
        self.conn, remote = self.ctx.Pipe()
        self.worker = self.ctx.Process(target=worker_main, args=(remote, self.beat, 0), daemon=True)
        self.worker.start()
        remote.close()
        self.conn.recv()
        self.log("INFO", f"Booting worker with pid: {self.worker.pid}")

    def murder_stale(self):
        if time.monotonic() - self.beat.value > self.timeout:
            self.log("CRITICAL", f"WORKER TIMEOUT (pid:{self.worker.pid})")
            os.kill(self.worker.pid, signal.SIGKILL)

    def reap(self):
        self.worker.join()
        name = signal.Signals(-self.worker.exitcode).name
        self.log("ERROR", f"Worker (pid:{self.worker.pid}) was sent {name}! Perhaps out of memory?")

    def submit(self, job):
        self.conn.send(job)
        while not self.conn.poll(0.5):
            self.murder_stale()
        try:
            return self.conn.recv()
        except EOFError:
            self.reap()
            raise RuntimeError(f"worker died while processing {job['name']}") from None

    def stop(self):
        self.conn.send(None)
        self.worker.join()


def documents(count):
    g = torch.Generator().manual_seed(1)
    for k in range(count):
        pages = 400 if k == count - 2 else 1 + k % 4
        yield f"report-{k:02d}.txt", torch.randint(0, 2000, (pages * 300,), generator=g).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, default=3.0)
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--ratio", type=int, default=6)
    args = parser.parse_args()

    service = Supervisor(args.timeout)
    for name, tokens in documents(args.documents):
        reply = service.submit({"name": name, "tokens": tokens, "ratio": args.ratio})
        print(f"{reply['name']}: {len(tokens)} tokens -> {reply['length']}", flush=True)
    service.stop()
    print("all documents summarised")


if __name__ == "__main__":
    main()
