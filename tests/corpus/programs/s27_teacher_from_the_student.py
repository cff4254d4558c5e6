import copy
import torch
import torch.nn as nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, dim))
        self.last = None

    def forward(self, x):
        self.last = self.body(x)
        return nn.functional.normalize(self.last, dim=-1)

    def spread(self):
        """How much the last batch fills the space; near 0 if it has collapsed."""
        return 0.0 if self.last is None else self.last.std(0).mean().item()


class SelfDistillation(nn.Module):
    def __init__(self, encoder, decay=0.99):
        super().__init__()
        self.student, self.decay = encoder, decay
        self.predictor = nn.Linear(48, 48)
        self.teacher = None

    def start_teacher(self):
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    @torch.no_grad()
    def follow(self):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.lerp_(s, 1 - self.decay)

    def loss(self, a, b):
        guess = nn.functional.normalize(self.predictor(self.student(a)), dim=-1)
        return 2 - 2 * (guess * self.teacher(b)).sum(-1).mean()


def views(n=64):
    x = torch.randn(n, 32)
    return x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)


def calibrate(encoder):
    """Scales the output so that it begins with a spread of 1."""
    encoder(views(256)[0])
    with torch.no_grad():
        encoder.body[-1].weight /= encoder.spread()
    print("calibrated", flush=True)


def main():
    encoder = Encoder()
    calibrate(encoder)
    learner = SelfDistillation(encoder)
    learner.start_teacher()
    opt = torch.optim.SGD(learner.parameters(), lr=0.05)
    for step in range(20):
        loss = learner.loss(*views())
        opt.zero_grad()
        loss.backward()
        opt.step()
        learner.follow()
    print("spread", round(encoder.spread(), 3))


main()
