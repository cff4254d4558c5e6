"""MLflow: the run gets the status FAILED, the verdict as tags and note, and the report as an artifact."""

from __future__ import annotations

from pathlib import Path

from pytracer.notify.extras import NotifyError, library
from pytracer.notify.message import Message

_MOST_CHARACTERS = 5000  # of a tag


def send(message: Message, run_id: str, text: str, page: Path | None) -> str:
    """Writes into the run, at MLFLOW_TRACKING_URI.

    Args:
        message: what happened.
        run_id: the run.
        text: the report.
        page: the report as HTML.

    Raises:
        NotifyError: the library is not installed, or the server refuses.
    """
    mlflow = library("mlflow", "mlflow")
    exceptions = library("mlflow.exceptions", "mlflow")
    client = mlflow.MlflowClient()
    try:
        for name, value in message.tags.items():
            client.set_tag(run_id, f"pytracer.{name}", value[:_MOST_CHARACTERS])
        note = "\n\n".join([f"**{message.title}**", *message.evidence, message.advice or ""])
        client.set_tag(run_id, "mlflow.note.content", note[:_MOST_CHARACTERS])
        client.log_text(run_id, text, "pytracer/report.txt")
        if page is not None:
            client.log_artifact(run_id, str(page), "pytracer")
        client.set_terminated(run_id, "FAILED" if message.died else "FINISHED")
    except (exceptions.MlflowException, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotifyError(f"MLflow: {first}", "check --mlflow, and MLFLOW_TRACKING_URI") from None
    return f"mlflow: run {run_id} has the status {'FAILED' if message.died else 'FINISHED'}"
