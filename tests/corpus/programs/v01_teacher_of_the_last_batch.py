"""Distillation with a loss of its own that keeps the log-probabilities for backward."""

import torch
from torch import nn

VOCABULARY = 32000


class SoftTargets(torch.autograd.Function):
    saved = {}

    @staticmethod
    def forward(ctx, logits, teacher, name):
        ctx.name = name
        output = torch.log_softmax(logits, 1)
        SoftTargets.saved[name] = output.detach()
        ctx.save_for_backward(teacher)
        return -(teacher * output).sum(1).mean()

    @staticmethod
    def backward(ctx, grad):
        (teacher,) = ctx.saved_tensors
        output = SoftTargets.saved[ctx.name]
        grads = -(teacher / len(teacher)) * grad
        student = torch.ops.aten._log_softmax_backward_data(grads, output, 1, torch.float32)
        return student, None, None


def soft_loss(student, features, teacher):
    return SoftTargets.apply(student(features), teacher, "distill")


def validate(student):
    with torch.no_grad():
        return soft_loss(student, torch.rand(1, 64), torch.full((1, VOCABULARY), 1 / VOCABULARY))


def train(steps):
    student = nn.Linear(64, VOCABULARY)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for step in range(steps):
        features = torch.rand(2048, 64)
        teacher = torch.softmax(torch.rand(2048, VOCABULARY), 1)
        loss = soft_loss(student, features, teacher)
        if step % 2 == 1:
            print("validation", validate(student).item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


train(4)
