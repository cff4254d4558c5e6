import torch
from torch import nn
from torch.func import functional_call, grad, vjp


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(out)))


class ResNetSmall(nn.Module):
    def __init__(self, width=8, num_classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.block = ResBlock(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.block(self.stem(x)).mean(dim=(2, 3)))


def rademacher(like):
    return {k: torch.randint(0, 2, v.shape).to(v.dtype) * 2 - 1 for k, v in like.items()}


def hutchinson_trace(model, images, labels, iterations=5):
    params = {k: v.detach() for k, v in model.named_parameters()}

    def loss_fn(params):
        logits = functional_call(model, params, (images,))
        return nn.functional.cross_entropy(logits, labels)

    trace = 0.0
    for _ in range(iterations):
        v = rademacher(params)
        _, vjp_fn = vjp(grad(loss_fn), params)
        hv = vjp_fn(v)[0]
        trace += sum((v[k] * hv[k]).sum() for k in v)
    return trace / iterations


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = ResNetSmall()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        images, labels = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))
        loss = nn.functional.cross_entropy(model(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace = hutchinson_trace(model, images, labels)
        print(f"epoch {epoch} loss {loss.item():.3f} tr(H) {trace.item():.2f}")


if __name__ == "__main__":
    main()
