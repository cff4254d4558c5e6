import os
import shutil
import tempfile

import torch
import torch.nn as nn


class VGG(nn.Module):
    def __init__(self, grid=7, out=30):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(True),
            nn.AdaptiveAvgPool2d(grid),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * grid * grid, 128), nn.ReLU(True), nn.Linear(128, grid * grid * out),
        )
        self.grid, self.out = grid, out

    def forward(self, x):
        return torch.sigmoid(self.classifier(self.features(x))).view(-1, self.grid, self.grid, self.out)


def train(save_path, epochs=2):
    net = nn.DataParallel(VGG())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)
    for epoch in range(epochs):
        images = torch.rand(8, 3, 112, 112)
        target = torch.rand(8, 7, 7, 30)
        loss = nn.functional.mse_loss(net(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("Epoch [%d/%d] average_loss: %.4f" % (epoch + 1, epochs, loss.item()))
    torch.save(net.state_dict(), save_path)


def predict(weights, image):
    model = VGG()
    print("load model...")
    model.load_state_dict(torch.load(weights))
    model.eval()
    with torch.no_grad():
        return model(image.unsqueeze(0))


if __name__ == "__main__":
    torch.manual_seed(1)
    workdir = tempfile.mkdtemp()
    try:
        path = os.path.join(workdir, "yolo.pth")
        train(path)
        result = predict(path, torch.rand(3, 112, 112))
        print("predicting...", result.shape)
    finally:
        shutil.rmtree(workdir)
