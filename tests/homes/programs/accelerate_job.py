"""Accelerate on two ranks of the CPU, started by `accelerate launch`."""

import sys

import torch
import training
from accelerate import Accelerator


def main(death: str) -> None:
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    model = training.classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(model, optimizer, training.samples(death, rank))
    loss = torch.zeros(())
    for epoch in range(2):
        for step, (features, labels) in enumerate(batches):
            training.die(death, rank, epoch * len(batches) + step)
            loss = torch.nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    accelerator.print(f"loss {float(loss):.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
