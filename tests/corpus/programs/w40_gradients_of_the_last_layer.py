import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(),
            nn.Conv2d(8, 16, 3, padding=1),
        )
        self.classifier = nn.Linear(16, classes)

    def forward(self, x):
        features = self.features(x)
        out = F.relu(features, inplace=True)
        out = F.adaptive_avg_pool2d(out, (1, 1))
        return self.classifier(torch.flatten(out, 1))


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.activation = self.gradient = None
        layer.register_forward_hook(self.hook_a)
        layer.register_full_backward_hook(self.hook_g)

    def hook_a(self, module, inputs, output):
        self.activation = output.data

    def hook_g(self, module, grad_input, grad_output):
        self.gradient = grad_output[0].data

    def __call__(self, images, class_idx):
        scores = self.model(images)
        self.model.zero_grad()
        scores[:, class_idx].sum().backward()
        weights = self.gradient.mean((2, 3), keepdim=True)
        return F.relu((weights * self.activation).sum(1))


def main():
    torch.manual_seed(0)
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        loss = F.cross_entropy(model(torch.rand(4, 3, 32, 32)), torch.randint(0, 5, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    extractor = GradCAM(model.eval(), model.features)
    heat = extractor(torch.rand(1, 3, 32, 32), 2)
    print(heat.shape)


if __name__ == "__main__":
    main()
