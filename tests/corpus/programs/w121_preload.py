"""Small pre-fork inference service for the ticket router.

The model is loaded once in the master, so that the workers share its pages,
then the workers are forked and each of them accepts on the same socket.
"""
import argparse
import http.client
import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.nn as nn

LABELS = ["billing", "outage", "hardware", "account", "other"]


class TicketEncoder(nn.Module):
    def __init__(self, vocab=4000, dim=128, heads=4, layers=2, n_labels=len(LABELS)):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(1, 128, dim))
        block = nn.TransformerEncoderLayer(dim, heads, 4 * dim, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, n_labels)

    def forward(self, ids):
        h = self.tok(ids) + self.pos[:, : ids.shape[1]]
        return self.head(self.encoder(h).mean(dim=1))


class Router:
    def __init__(self, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(7)
        self.model = TicketEncoder().eval()

    def encode(self, text, length=96):
        ids = [(hash_word(w) % 3999) + 1 for w in text.lower().split()][:length]
        return torch.tensor([ids + [0] * (length - len(ids))])

    @torch.inference_mode()
    def route(self, texts):
        batch = torch.cat([self.encode(t) for t in texts])
        scores = self.model(batch).softmax(dim=-1)
        return [LABELS[i] for i in scores.argmax(dim=-1).tolist()]


def hash_word(word):
    value = 5381
    for ch in word:
        value = (value * 33 + ord(ch)) & 0x7FFFFFFF
    return value


def make_handler(router):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = router.route(json.loads(body)["texts"])
            payload = json.dumps({"labels": answer, "pid": os.getpid()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, fmt, *args):
            print("[worker %d] %s" % (os.getpid(), fmt % args), flush=True)

    return Handler


def worker_main(listener, router, lifetime):
    signal.alarm(lifetime)
    server = HTTPServer(listener.getsockname(), make_handler(router), bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def smoke_test(port, tickets, batch):
    for start in range(0, len(tickets), batch):
        conn = http.client.HTTPConnection("127.0.0.1", port)
        conn.request("POST", "/route", json.dumps({"texts": tickets[start:start + batch]}))
        reply = json.loads(conn.getresponse().read())
        print("tickets %3d..%3d -> %s" % (start, start + batch, reply["labels"][:4]), flush=True)
        conn.close()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--worker-lifetime", type=int, default=120)
    args = ap.parse_args()

    tickets = ["router %d drops the line after %d minutes please help" % (i, i % 17) for i in range(64)]
    router = Router(args.threads)
    t0 = time.time()
    for start in range(0, 32, 8):
        router.route(tickets[start:start + 8])
    print("model loaded and warmed up in %.2f s" % (time.time() - t0), flush=True)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    pids = []
    for _ in range(args.workers):
        pid = os.fork()
        if pid == 0:
            worker_main(listener, router, args.worker_lifetime)
            os._exit(0)
        pids.append(pid)
    print("%d workers listening on port %d" % (len(pids), port), flush=True)

    smoke_test(port, tickets, 16)
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    print("smoke test passed")


if __name__ == "__main__":
    sys.exit(main())
