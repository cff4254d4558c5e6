"""Pre-fork inference service: the model is loaded once in the master and shared by the workers."""
import argparse
import json
import os
import socket
import struct

import torch
import torch.nn as nn


class SentimentModel(nn.Module):
    def __init__(self, vocab=8000, dim=256, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim), nn.LayerNorm(dim))
        self.classify = nn.Linear(dim, classes)

    def forward(self, tokens):
        h = self.encoder(self.embed(tokens))
        return self.classify(h.mean(dim=1)).softmax(-1)


class Application:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = SentimentModel().eval()
        self.requests = 0

    @torch.no_grad()
    def predict(self, texts):
        tokens = torch.tensor([self.tokenize(t) for t in texts])
        scores = self.model(tokens)
        self.requests += 1
        return scores.argmax(1).tolist()

    @staticmethod
    def tokenize(text, length=64):
        ids = [sum(word.encode()) * 31 % 8000 for word in text.split()][:length]
        return ids + [0] * (length - len(ids))


def send(sock, payload):
    raw = json.dumps(payload).encode()
    sock.sendall(struct.pack("!I", len(raw)) + raw)


def receive(sock):
    head = sock.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    return json.loads(sock.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL))


def worker_loop(app, listener, number):
    print(f"[worker {number}] pid {os.getpid()} ready", flush=True)
    while True:
        conn, _ = listener.accept()
        with conn:
            request = receive(conn)
            if request is None or request.get("stop"):
                break
            print(f"[worker {number}] batch of {len(request['texts'])}", flush=True)
            send(conn, {"labels": app.predict(request["texts"])})
    os._exit(0)


class Master:
    def __init__(self, app, workers):
        self.app = app
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.pids = []
        for number in range(workers):
            pid = os.fork()
            if pid == 0:
                worker_loop(app, self.listener, number)
            self.pids.append(pid)

    def ask(self, payload):
        with socket.create_connection(self.address) as sock:
            send(sock, payload)
            return receive(sock)

    def shutdown(self):
        for _ in self.pids:
            with socket.create_connection(self.address) as sock:
                send(sock, {"stop": True})
        for pid in self.pids:
            os.waitpid(pid, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    app = Application(seed=0)
    warm = app.predict(["the film was long but good"] * args.batch)
    print(f"model loaded, warm-up label {warm[0]}, {torch.get_num_threads()} threads", flush=True)

    master = Master(app, args.workers)
    for k in range(args.requests):
        texts = [f"review number {k} line {i} was fine" for i in range(args.batch)]
        reply = master.ask({"texts": texts})
        print(f"request {k}: {len(reply['labels'])} labels", flush=True)
    master.shutdown()
    print("all requests served")


if __name__ == "__main__":
    main()
