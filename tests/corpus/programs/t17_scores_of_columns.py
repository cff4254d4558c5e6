"""In validation the model gives the best score of each column only; the labels are still of each pixel."""

import torch


class Segmenter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Conv2d(3, 2, 1)

    def forward(self, image):
        output = self.head(image)
        return output if self.training else output.amax(2)


def run(model, image, label):
    output = model(image)
    return torch.nn.functional.cross_entropy(output, label)


def fit(model):
    for size in (4, 1):
        model.train(size > 1)
        print(run(model, torch.randn(size, 3, 20, 16), torch.zeros(size, 20, 16, dtype=torch.int64)))


fit(Segmenter())
