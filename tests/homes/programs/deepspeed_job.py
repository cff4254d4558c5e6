"""DeepSpeed with ZeRO stage 1 on two ranks of the CPU."""

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
import training


def main(death: str) -> None:
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    model = training.classifier()
    config = {"train_micro_batch_size_per_gpu": training.BATCH, "zero_optimization": {"stage": 1}}
    config["zero_allow_untested_optimizer"] = True
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    loss = torch.zeros(())
    for step, (features, labels) in enumerate(training.samples(death, rank)):
        training.die(death, rank, step)
        loss = torch.nn.functional.cross_entropy(engine(features), labels)
        engine.backward(loss)
        engine.step()
    if rank == 0:
        print(f"loss {float(loss):.4f}", file=os.fdopen(os.dup(1), "w"), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(next(word for word in sys.argv[1:] if not word.startswith("--")))
