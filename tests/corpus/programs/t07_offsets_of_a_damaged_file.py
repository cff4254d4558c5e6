"""A stream of Arrow was damaged on its way: the offsets of its strings lead far outside of the data."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa


def write(path, words):
    batch = pa.record_batch([pa.array(words)], names=["text"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def damage(path, words):
    lengths = np.cumsum([0] + [len(word) for word in words]).astype(np.int32)
    data = bytearray(path.read_bytes())
    start = data.index(lengths.tobytes())
    data[start + 40 : start + 44] = np.int32(1_900_000_000).tobytes()
    data[start + 44 : start + 48] = np.int32(1_900_000_600).tobytes()
    path.write_bytes(data)


def texts(path):
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        return [text for batch in reader for text in batch.column("text").to_pylist()]


with tempfile.TemporaryDirectory() as folder:
    path, words = Path(folder, "train.arrow"), [f"sentence {number:04}" for number in range(256)]
    write(path, words)
    print(len(texts(path)))
    damage(path, words)
    print(len(texts(path)))
