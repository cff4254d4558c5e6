"""The options of a configuration are passed on to a class whose newer release has another name for one."""

import torch

CONFIG = {"trainer": {"max_epochs": 2, "num_processes": 1}}


class Trainer:
    def __init__(self, max_epochs=1, devices=1):
        self.max_epochs, self.devices = max_epochs, devices

    def fit(self, model):
        for _ in range(self.max_epochs):
            model(torch.randn(8, 4)).sum().backward()


def instantiate(kind, options):
    return kind(**options)


def main(config):
    instantiate(Trainer, config["trainer"]).fit(torch.nn.Linear(4, 1))


main(CONFIG)
