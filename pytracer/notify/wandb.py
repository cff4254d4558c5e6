"""Weights & Biases: the run is marked as failed, with the verdict in its summary and the report as a file."""

from __future__ import annotations

from pathlib import Path

from pytracer.notify.extras import NotifyError, library
from pytracer.notify.message import Message


def send(message: Message, run: str, text: str, page: Path | None) -> str:
    """Resumes the run, writes into it, and finishes it.

    Args:
        message: what happened.
        run: [ENTITY/]PROJECT/RUN_ID. W&B's own variables apply, e.g. WANDB_MODE=offline.
        text: the report.
        page: the report as HTML.

    Raises:
        NotifyError: the library is not installed, or W&B refuses.
    """
    entity, project, number = _parsed(run)
    wandb = library("wandb", "wandb")
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True)
    try:
        live = wandb.init(entity=entity, project=project, id=number, resume="allow", settings=settings)
        live.summary.update({f"pytracer/{name}": value for name, value in message.tags.items()})
        live.summary.update({"pytracer/summary": message.title, "pytracer/advice": message.advice or ""})
        (Path(live.dir) / "pytracer.txt").write_text(text, encoding="utf-8")  # files of this folder are uploaded
        if page is not None:
            live.log({"pytracer": wandb.Html(page.read_text(encoding="utf-8"), inject=False)})
        live.finish(exit_code=int(message.died))  # W&B shows a run with another status than 0 as failed
    except wandb.Error as error:
        raise NotifyError(f"W&B: {error}", "check --wandb, and `wandb login`") from None
    return f"wandb: {run} is marked as {'failed' if message.died else 'finished'}"


def _parsed(run: str) -> tuple[str | None, str, str]:
    parts = run.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise NotifyError(f"{run!r} is no run of W&B", "write it as PROJECT/RUN_ID or ENTITY/PROJECT/RUN_ID")
    return parts[0] if len(parts) == 3 else None, parts[-2], parts[-1]
