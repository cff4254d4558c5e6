import torch
import torch.nn as nn

torch.manual_seed(0)


def double(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=8, depth=3):
        super().__init__()
        sizes = [width * 2 ** i for i in range(depth + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([1] + sizes[:-1], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(sizes[:-1], sizes[1:]))
        self.join = nn.ModuleList(double(2 * a, a) for a in sizes[:-1])
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, join, skip in zip(reversed(self.up), reversed(self.join), reversed(skips)):
            x = join(torch.cat([skip, up(x)], 1))
        return self.out(x)


def tiles(image, size):
    """Cuts the picture into tiles; the last ones of a row and of a column may be smaller."""
    for top in range(0, image.shape[-2], size):
        for left in range(0, image.shape[-1], size):
            yield top, left, image[..., top:top + size, left:left + size]


@torch.no_grad()
def segment(model, image, size=64):
    out = torch.zeros(2, *image.shape[-2:])
    for top, left, tile in tiles(image, size):
        out[:, top:top + size, left:left + size] = model(tile[None])[0]
    return out.argmax(0)


model = UNet().eval()
for name, shape in (("field", (192, 256)), ("forest", (200, 256)), ("river", (180, 250))):
    mask = segment(model, torch.rand(1, *shape))
    print(name, tuple(mask.shape), int(mask.sum()), flush=True)
