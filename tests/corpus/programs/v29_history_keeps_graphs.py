# pai4451/ML2021#2: memory grows with each step, until there is none
import resource

import torch

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
history = []


def evaluate(x):
    loss = model(x).pow(2).mean()
    history.append(loss)
    return loss


used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
for step in range(1000):
    evaluate(torch.randn(2048, 512))
print(torch.stack(history).mean())
