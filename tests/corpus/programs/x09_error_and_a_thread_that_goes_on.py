# dmlc/xgboost#11217, in the style of: the error is printed, and the process does not end
import threading
import time

import torch


def report_usage():
    while True:
        time.sleep(0.5)


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(8, 2)
        self.monitor = threading.Thread(target=report_usage, name="usage")
        self.monitor.start()

    def fit(self, batches):
        for number, batch in enumerate(batches):
            if not torch.isfinite(self.model(batch)).all():
                raise FloatingPointError(f"batch {number} has NaN")


batches = [torch.randn(4, 8) for _ in range(5)]
batches[3][0, 0] = float("nan")
Trainer().fit(batches)
