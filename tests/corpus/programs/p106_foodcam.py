"""Food detector behind a socket: a camera board sends pictures, each is saved, loaded by the C library and scored."""
import argparse
import ctypes
import json
import socket
import struct
import subprocess
import threading
from pathlib import Path

import numpy as np
import torch
from torch import nn


class IMAGE(ctypes.Structure):
    _fields_ = [("w", ctypes.c_int), ("h", ctypes.c_int), ("c", ctypes.c_int), ("data", ctypes.POINTER(ctypes.c_float))]


def load_library():
    source = Path(__file__).with_name("p106_foodcam.c")
    target = Path("libfoodcam.so").resolve()
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.load_image.argtypes = [ctypes.c_char_p]
    lib.load_image.restype = IMAGE
    lib.free_image.argtypes = [IMAGE]
    lib.free_image.restype = None
    return lib


class FoodNet(nn.Module):
    def __init__(self, foods=6):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
        self.classify = nn.Linear(16, foods)

    def forward(self, x):
        return self.classify(self.features(x).mean(dim=(2, 3)))


class CameraBoard(threading.Thread):
    """Stands in for the board: a header with the payload size, then the picture as PPM."""

    def __init__(self, port, pictures, link_budget):
        super().__init__(daemon=True)
        self.port, self.pictures, self.link_budget = port, pictures, link_budget

    def run(self):
        rng = np.random.default_rng(8)
        with socket.create_connection(("127.0.0.1", self.port)) as link:
            for n in range(self.pictures):
                side = 96 + 16 * (n % 9)
                pixels = rng.integers(0, 256, size=(side, side, 3), dtype=np.uint8)
                payload = (b"P6\n%d %d\n255\n" % (side, side) + pixels.tobytes())[: self.link_budget]
                link.sendall(struct.pack("!I", len(payload)) + payload)
            link.sendall(struct.pack("!I", 0))


def receive_exactly(connection, count):
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionError("camera went away")
        parts += part
    return bytes(parts)


class Detector:
    def __init__(self, lib, net):
        self.lib, self.net = lib, net

    @torch.no_grad()
    def detect(self, path):
        image = self.lib.load_image(str(path).encode())
        pixels = np.ctypeslib.as_array(image.data, shape=(image.c, image.h, image.w))
        scores = self.net(torch.from_numpy(pixels.copy())[None]).softmax(dim=1)[0]
        self.lib.free_image(image)
        return int(scores.argmax()), float(scores.max())


def serve(server, detector, folder):
    results = {}
    connection, _ = server.accept()
    with connection:
        while True:
            size, = struct.unpack("!I", receive_exactly(connection, 4))
            if size == 0:
                return results
            path = folder / f"picture_{len(results):03d}.ppm"
            path.write_bytes(receive_exactly(connection, size))
            food, score = detector.detect(path)
            results[path.name] = {"food": food, "score": round(score, 3)}
            print(f"{path.name}: food {food} score {score:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--link-budget", type=int, default=131072)
    args = parser.parse_args()
    torch.manual_seed(4)
    folder = Path("incoming")
    folder.mkdir(exist_ok=True)
    detector = Detector(load_library(), FoodNet().eval())
    with socket.create_server(("127.0.0.1", 0)) as server:
        CameraBoard(server.getsockname()[1], args.pictures, args.link_budget).start()
        try:
            results = serve(server, detector, folder)
        except Exception as error:
            print(f"stopped: {error!r}")
            raise
    Path("results.json").write_text(json.dumps(results, indent=1))
    print(f"{len(results)} pictures, results.json written")


if __name__ == "__main__":
    main()
