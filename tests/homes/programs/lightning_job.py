"""Lightning on two ranks of the CPU; it starts the second one itself."""

import os
import sys

import lightning
import torch
import training


class Classifier(lightning.LightningModule):
    """The model, and a death in its training step."""

    def __init__(self, death: str) -> None:
        super().__init__()
        self.death = death
        self.layers = training.classifier()

    def training_step(self, batch, index):
        training.die(self.death, self.global_rank, self.global_step)
        features, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(features), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return training.samples(self.death, self.global_rank)


def main(strategy: str, death: str) -> None:
    model = Classifier(death)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=os.environ["HOMES_WORK"],
    )  # fmt: skip
    trainer.fit(model)
    if trainer.is_global_zero:
        print(f"{trainer.global_step} steps", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
