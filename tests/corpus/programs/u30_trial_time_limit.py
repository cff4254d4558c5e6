# a sweep that ends its trials: subprocess.run(timeout=...) kills
import subprocess
import sys

TRIAL = """
import time, torch
model = torch.nn.Linear(8, 8)
for step in range(1000):
    model(torch.randn(4, 8)).sum().backward()
    time.sleep(0.05)
"""


def trial(rate):
    subprocess.run([sys.executable, "-c", TRIAL, str(rate)], timeout=6, check=True)


if __name__ == "__main__":
    for rate in (0.1, 0.01):
        trial(rate)
