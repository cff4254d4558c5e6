import multiprocessing

import torch
from torch import nn


def frame_stream(n=20):
    gen = torch.Generator().manual_seed(1)
    for _ in range(n):
        clip = torch.zeros(10, 170, 70)
        clip += torch.rand(10, 170, 70, generator=gen)
        yield clip


def _bg_loop(gen_creator, conn):
    gen = gen_creator()
    while conn.recv():
        try:
            conn.send(next(gen).numpy())
        except StopIteration:
            conn.send(None)
            return


def background_generator(gen_creator):
    parent_conn, child_conn = multiprocessing.Pipe()
    p = multiprocessing.Process(target=_bg_loop, args=(gen_creator, child_conn), daemon=True)
    p.start()
    parent_conn.send(True)
    while True:
        parent_conn.send(True)
        item = parent_conn.recv()
        if item is None:
            p.join()
            return
        yield torch.from_numpy(item)


class ClipNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(10, 4, 5, stride=4)
        self.fc = nn.LazyLinear(1)

    def forward(self, x):
        return self.fc(self.conv(x.unsqueeze(0)).relu().flatten(1))


def background_mask(h=152 * 4, w=168 * 4):
    return torch.zeros(h, w).float() + 0.5


def main():
    torch.manual_seed(0)
    mask = background_mask()
    model = ClipNet()
    total = 0.0
    with torch.no_grad():
        for i, clip in enumerate(background_generator(frame_stream)):
            total += model(clip * mask[:170, :70]).item()
            print(f"clip {i}: running score {total:.3f}", flush=True)


if __name__ == "__main__":
    main()
