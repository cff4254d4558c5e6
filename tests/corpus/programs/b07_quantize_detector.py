import copy
import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx


class Conv(nn.Module):
    def __init__(self, c1, c2, stride=2):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Detect(nn.Module):
    def __init__(self, nc=3, ch=(32, 64)):
        super().__init__()
        self.no = nc + 5
        self.grid = [torch.empty(0) for _ in ch]
        self.m = nn.ModuleList(nn.Conv2d(c, self.no, 1) for c in ch)

    def forward(self, x):
        z = []
        for i in range(len(self.m)):
            y = self.m[i](x[i])
            bs, _, ny, nx = y.shape
            if self.grid[i].shape[:2] != y.shape[2:4]:
                self.grid[i] = self._make_grid(nx, ny)
            z.append(y.sigmoid().view(bs, self.no, ny * nx))
        return torch.cat(z, 2)

    def _make_grid(self, nx, ny):
        yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
        return torch.stack((xv, yv), 2).float()


class DetectionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 16), Conv(16, 32))
        self.stage = Conv(32, 64)
        self.detect = Detect()

    def forward(self, im):
        p3 = self.stem(im)
        return self.detect([p3, self.stage(p3)])


def quantize(model, calibration):
    model_to_quantize = copy.deepcopy(model).eval()
    qconfig_mapping = get_default_qconfig_mapping("x86")
    prepared = prepare_fx(model_to_quantize, qconfig_mapping, (calibration[0],))
    with torch.no_grad():
        for im in calibration:
            prepared(im)
    return convert_fx(prepared)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DetectionModel().eval()
    images = [torch.rand(1, 3, 64, 64) for _ in range(4)]
    print("float model:", tuple(model(images[0]).shape))
    quantized = quantize(model, images)
    print("int8 model:", tuple(quantized(images[0]).shape))


if __name__ == "__main__":
    main()
