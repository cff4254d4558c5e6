import ctypes

import torch
import torch.nn as nn

torch.manual_seed(19)
DEVICE = "cuda"
H, W = 96, 128


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, x):
        return (x + self.net(x)).clamp(0, 1)


class FrameRing:
    def __init__(self, slots, nbytes):
        self.nbytes = nbytes
        self.slots = [ctypes.create_string_buffer(nbytes) for _ in range(slots)]
        self.next = 0

    def push(self, image):
        slot = self.slots[self.next % len(self.slots)]
        ctypes.memmove(slot, image.data_ptr(), self.nbytes)
        self.next += 1
        return sum(slot.raw[:16])


def to_bytes(image, gamma):
    image = image.pow(gamma) if gamma != 1.0 else image.cpu()
    image = image.mul(255).round().to(torch.uint8)
    return image.permute(1, 2, 0).contiguous()


@torch.no_grad()
def main():
    model = Denoiser().to(DEVICE).eval()
    ring = FrameRing(4, H * W * 3)
    schedule = [1.0, 1.0, 1.0, 1.0, 0.9, 0.9]
    for step, gamma in enumerate(schedule):
        noisy = torch.rand(1, 3, H, W, device=DEVICE)
        clean = model(noisy)[0]
        packed = to_bytes(clean, gamma)
        head = ring.push(packed)
        print(step, gamma, head)


main()
