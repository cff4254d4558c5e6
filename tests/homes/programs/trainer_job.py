"""Hugging Face Trainer, on the ranks that torchrun starts."""

import os
import sys

import torch
import training
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    """The samples as the Trainer wants them: dictionaries."""

    def __init__(self, death: str, rank: int) -> None:
        self.samples = training.Samples(death, rank)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int):
        features, labels = self.samples[index]
        return {"features": features, "labels": labels}


class Classifier(nn.Module):
    """A model that computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = training.classifier()

    def forward(self, features: torch.Tensor, labels: torch.Tensor):
        logits = self.layers(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Dies(TrainerCallback):
    """Before a step."""

    def __init__(self, death: str, rank: int) -> None:
        self.death, self.rank = death, rank

    def on_step_begin(self, args, state, control, **more):
        training.die(self.death, self.rank, state.global_step)


def main(death: str) -> None:
    rank = int(os.environ["RANK"])
    arguments = TrainingArguments(
        output_dir=os.environ["HOMES_WORK"], per_device_train_batch_size=training.BATCH, max_steps=training.STEPS,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
        dataloader_num_workers=1 if death in ("none", "worker") else 0, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(
        Classifier(), arguments, train_dataset=Rows(death, rank), callbacks=[Dies(death, rank)],
    )  # fmt: skip
    result = trainer.train()
    if rank == 0:
        print(f"loss {result.training_loss:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
