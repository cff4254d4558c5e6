# mat1 and mat2 shapes cannot be multiplied
import torch


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.MaxPool2d(2), torch.nn.Flatten())
        self.head = torch.nn.Linear(8 * 15 * 15, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


model = Classifier()
print(model(torch.randn(2, 3, 32, 32)).shape)
print(model(torch.randn(2, 3, 28, 28)).shape)
