"""Keras 3 on torch."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import training


class Dies(keras.callbacks.Callback):
    """Before a batch."""

    def __init__(self, death: str) -> None:
        super().__init__()
        self.death = death

    def on_train_batch_begin(self, batch, logs=None):
        training.die(self.death, training.VICTIM, batch)


def main(death: str) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(training.CLASSES)])
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batches = training.samples(death, training.VICTIM)
    history = model.fit(batches, epochs=1, verbose=0, callbacks=[Dies(death)])
    print(f"loss {history.history['loss'][-1]:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
