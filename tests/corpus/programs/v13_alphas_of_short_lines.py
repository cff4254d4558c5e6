"""Handwriting recognition: a CTC loss that keeps its forward variables and is differentiated by hand."""

import torch
from torch import nn


class KeptCTC:
    def __init__(self):
        self.alpha = None

    def loss(self, scores, lines, lengths, widths):
        nll, alpha = torch._ctc_loss(scores, lines, widths, lengths, 0, False)
        if self.alpha is None or nll.mean() < self.best:
            self.alpha, self.best = alpha, nll.mean()
        self.nll = nll
        return nll.mean()

    def gradient(self, scores, lines, lengths, widths):
        grad = torch.full_like(self.nll, 1 / len(self.nll))
        return torch.ops.aten._ctc_loss_backward(grad, scores, lines, widths, lengths, self.nll, self.alpha, 0, False)


def batch(size, width, letters):
    return torch.rand(size, width, 32), torch.randint(1, 80, (size, letters))


def train():
    torch.manual_seed(0)
    model, ctc = nn.Linear(32, 80), KeptCTC()
    for step, (size, width, letters) in enumerate([(4, 40, 5), (4, 40, 5), (64, 200, 60), (64, 200, 60)]):
        pictures, lines = batch(size, width, letters)
        scores = model(pictures).log_softmax(2).transpose(0, 1)
        lengths, widths = [letters] * size, [width] * size
        with torch.no_grad():
            loss = ctc.loss(scores, lines, lengths, widths)
            gradient = ctc.gradient(scores, lines, lengths, widths)
        scores.backward(gradient)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        print(step, loss.item())


train()
