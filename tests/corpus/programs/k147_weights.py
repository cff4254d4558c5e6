"""Fetch the pretrained backbone from the lab server and fine-tune it on the insect crops."""
import argparse
import io
import os
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.nn as nn


class Backbone(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        )
        self.fc = nn.Sequential(nn.Linear(64 * 16, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class WeightsServer(BaseHTTPRequestHandler):
    blob = b""
    hits = 0

    def do_GET(self):
        type(self).hits += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.blob)))
        self.end_headers()
        chunk = 64 * 1024
        for n, i in enumerate(range(0, len(self.blob), chunk)):
            if type(self).hits == 1 and n >= 9:
                time.sleep(5)
                return
            self.wfile.write(self.blob[i:i + chunk])

    def log_message(self, *args):
        pass


def start_server():
    torch.manual_seed(1)
    buf = io.BytesIO()
    torch.save(Backbone().state_dict(), buf)
    WeightsServer.blob = buf.getvalue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), WeightsServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/backbone.pt"


class ModelStore:
    def __init__(self, root, retries=3, timeout=1.5):
        self.root, self.retries, self.timeout = root, retries, timeout
        os.makedirs(root, exist_ok=True)

    def get(self, url):
        path = os.path.join(self.root, os.path.basename(url))
        for attempt in range(self.retries):
            if os.path.exists(path):
                print(f"using cached {os.path.basename(path)}", flush=True)
                return path
            try:
                print(f"downloading {os.path.basename(path)}", flush=True)
                with urllib.request.urlopen(url, timeout=self.timeout) as src, open(path, "wb") as dst:
                    while block := src.read(32 * 1024):
                        dst.write(block)
            except OSError as e:
                print(f"attempt {attempt + 1}: {e}, trying again", flush=True)
        return path


def load_backbone(store, url):
    model = Backbone()
    state = torch.load(store.get(url), map_location="cpu")
    model.load_state_dict(state)
    return model


def fit(model, steps, classes=10):
    g = torch.Generator().manual_seed(3)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        y = torch.randint(0, classes, (16,), generator=g)
        x = torch.randn(16, 3, 16, 16, generator=g) + y.view(-1, 1, 1, 1) * 0.2
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=6)
    ap.add_argument("--cache", default=None)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    url = start_server()
    store = ModelStore(args.cache or tempfile.mkdtemp(prefix="weights_"))

    print(f"from scratch: loss {fit(Backbone(), args.steps):.4f}", flush=True)
    model = load_backbone(store, url)
    print(f"pretrained: loss {fit(model, args.steps):.4f}")


if __name__ == "__main__":
    main()
