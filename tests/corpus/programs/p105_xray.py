"""Segment a set of chest X-rays with the three anatomy models; weights are fetched from the lab's mirror once."""
import argparse
import io
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from torch import nn

MODELS = {"lungs": 2, "heart": 2, "ribs": 13}
LIMIT_PAGE = b"""<!DOCTYPE html><html><head><title>Mirror - Quota exceeded</title></head>
<body><p>Sorry, you can't view or download this file at this time.</p>
<p>Too many users have viewed or downloaded this file recently. Please try again later.</p></body></html>
"""


class UNetSmall(nn.Module):
    def __init__(self, classes, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(width, width * 2, 3, stride=2, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(width * 2, width * 2, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(width * 2, width, 2, stride=2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        return self.head(torch.relu(self.up(self.middle(self.down(x)))))


class Mirror(BaseHTTPRequestHandler):
    """The file server of the lab: hands out weights, with a traffic limit for all files together."""
    traffic_left = 64 * 1024

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1].removesuffix(".pth")
        torch.manual_seed(len(name))
        buffer = io.BytesIO()
        torch.save({"state_dict": UNetSmall(MODELS[name]).state_dict(), "classes": MODELS[name]}, buffer)
        body, kind = buffer.getvalue(), "application/octet-stream"
        Mirror.traffic_left -= len(body)
        if Mirror.traffic_left < 0:
            body, kind = LIMIT_PAGE, "text/html; charset=utf-8"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def start_mirror():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/weights"


class WeightStore:
    def __init__(self, base_url, folder):
        self.base_url = base_url
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name):
        target = self.folder / f"{name}.pth"
        if not target.exists():
            with urllib.request.urlopen(f"{self.base_url}/{name}.pth") as reply:
                target.write_bytes(reply.read())
            print(f"downloaded {target}", flush=True)
        return target

    def load(self, name):
        checkpoint = torch.load(self.path(name), map_location="cpu")
        model = UNetSmall(checkpoint["classes"])
        model.load_state_dict(checkpoint["state_dict"])
        return model.eval()


def make_xrays(count, side):
    grid = torch.linspace(-1, 1, side)
    body = torch.exp(-(grid[:, None] ** 2 + 2 * (grid[None, :].abs() - 0.4) ** 2))
    return body + 0.1 * torch.randn(count, 1, side, side)


@torch.no_grad()
def segment(model, images, batch_size):
    areas = []
    for batch in images.split(batch_size):
        areas.append((model(batch).argmax(dim=1) > 0).float().mean(dim=(1, 2)))
    return torch.cat(areas)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    args = parser.parse_args()
    torch.manual_seed(0)
    images = make_xrays(args.images, args.side)
    store = WeightStore(start_mirror(), args.weights)
    report = {}
    for name in MODELS:
        model = store.load(name)
        report[name] = segment(model, images, batch_size=8)
        print(f"{name}: mean area {report[name].mean():.3f}", flush=True)
    torch.save(report, "areas.pt")
    print("report written to areas.pt")


if __name__ == "__main__":
    main()
