import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig, prepare, convert, fuse_modules


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.relu2 = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.relu1(self.conv1(x))
        x = self.relu2(self.conv2(x))
        return self.fc(torch.flatten(self.pool(x), 1))


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def quantize(model):
    model.eval()
    model = fuse_modules(model, [["conv1", "relu1"], ["conv2", "relu2"]])
    model.qconfig = get_default_qconfig("fbgemm")
    prepared = prepare(model)
    with torch.no_grad():
        for _ in range(4):
            prepared(torch.randn(16, 3, 32, 32))
    return convert(prepared)


def evaluate(model, batches):
    correct = 0
    with torch.no_grad():
        for _ in range(batches):
            images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
            correct += (model(images).argmax(1) == labels).sum().item()
    return correct / (16 * batches)


if __name__ == "__main__":
    model = Classifier()
    print(f"loss {train(model, 5):.4f}, accuracy {evaluate(model, 4):.3f}", flush=True)
    quantized = quantize(model)
    print(f"quantized: accuracy {evaluate(quantized, 4):.3f}")
