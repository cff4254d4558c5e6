"""TensorBoard: the report on the page of texts, and a scalar that is 1 where the job died. Needs no torch."""

from __future__ import annotations

import time
from pathlib import Path

from pytracer.notify.extras import library
from pytracer.notify.message import Message

TAG = "pytracer"


def write(message: Message, directory: str, markdown: str) -> str:
    """Adds an event file to a log directory.

    Raises:
        NotifyError: the library is not installed.
        OSError: the directory cannot be written.
    """
    events = library("tensorboard.compat.proto.event_pb2", "tensorboard")
    summaries = library("tensorboard.compat.proto.summary_pb2", "tensorboard")
    writers = library("tensorboard.summary.writer.event_file_writer", "tensorboard")
    text_metadata = library("tensorboard.plugins.text.metadata", "tensorboard")
    tensors = library("tensorboard.util.tensor_util", "tensorboard")

    step = int(message.tags.get("step", "0"))
    text = summaries.Summary.Value(
        tag=f"{TAG}/report",
        metadata=text_metadata.create_summary_metadata(display_name="pytracer", description=message.title),
        tensor=tensors.make_tensor_proto(markdown.encode(), dtype="string", shape=[]),
    )
    died = summaries.Summary.Value(tag=f"{TAG}/died", simple_value=float(message.died))
    Path(directory).mkdir(parents=True, exist_ok=True)
    writer = writers.EventFileWriter(directory, filename_suffix=".pytracer")
    for value in (text, died):
        writer.add_event(events.Event(wall_time=time.time(), step=step, summary=summaries.Summary(value=[value])))
    writer.close()
    return f"tensorboard: {TAG}/report in {directory}"
