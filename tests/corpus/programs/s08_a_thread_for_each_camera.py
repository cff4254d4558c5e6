import queue
import threading
import torch

CAMERAS = 64


class Background:
    """Separates what moves from what stays, by the largest singular vectors of the last frames."""

    def __init__(self, keep=2):
        self.keep = keep

    def split(self, frames):
        u, s, v = torch.linalg.svd(frames, full_matrices=False)
        still = u[:, : self.keep] * s[: self.keep] @ v[: self.keep]
        return still, frames - still


class Camera(threading.Thread):
    def __init__(self, number, inbox):
        super().__init__(name=f"camera-{number}", daemon=True)
        self.inbox, self.background = inbox, Background()
        self.motion = []

    def run(self):
        while True:
            frames = self.inbox.get()
            if frames is None:
                return
            _, moving = self.background.split(frames)
            self.motion.append(float(moving.abs().mean()))


def start(count):
    """Many threads: little memory for each."""
    threading.stack_size(64 * 1024)
    cameras = [Camera(i, queue.Queue()) for i in range(count)]
    for c in cameras:
        c.start()
    return cameras


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    still, _ = Background().split(torch.randn(320, 300))
    print("calibrated", round(float(still.norm()), 3), flush=True)
    cameras = start(CAMERAS)
    for c in cameras[:2]:
        c.inbox.put(torch.randn(320, 300))
    for c in cameras:
        c.inbox.put(None)
    for c in cameras:
        c.join()
    print([c.motion for c in cameras[:2]])
