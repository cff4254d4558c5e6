"""The places that a report can be sent to. Each is sent to, whatever happens to the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytracer.notify import github, junit, mlflow, opentelemetry, prometheus, sentry, tensorboard, wandb, webhook
from pytracer.notify.extras import NotifyError
from pytracer.notify.message import Message, message_of
from pytracer.render.markdown import render_markdown
from pytracer.render.text import render_text
from pytracer.report.job import Report

STANDARD = "auto"  # as the service's own variables say


@dataclass(frozen=True)
class Targets:
    """Where to send; None: not there. `auto`: where the service's own environment variables point to."""

    github: bool = False
    junit: str | None = None
    prometheus: str | None = None
    webhook: str | None = None
    otel: str | None = None
    sentry: str | None = None
    wandb: str | None = None
    mlflow: str | None = None
    tensorboard: str | None = None
    page: str | None = None  # the report as HTML, for W&B and MLflow


@dataclass(frozen=True)
class Outgoing:
    """The report, and as it leaves the company: `public` has neither secrets nor hosts, users and directories."""

    report: Report
    public: Report
    write: Callable[[Path, str], None]  # a whole file or none
    show: Callable[[str], None]  # a line for the runner of a workflow

    @property
    def message(self) -> Message:
        """The message about it."""
        return message_of(self.report)


def send_all(targets: Targets, out: Outgoing) -> Iterator[str | NotifyError]:
    """Sends to each target in turn; yields a line for the user, or the error of one.

    Services are told of failures only. Files are written for a run without one, too.
    """
    died = out.message.died
    for name, send in _asked(targets, out):
        if not died and name not in ("junit", "prometheus", "github"):
            yield f"{name}: nothing died, so nothing is sent"
            continue
        try:
            yield send()
        except NotifyError as error:
            yield error
        except Exception as error:  # a service's library may raise anything; the others are still told
            yield NotifyError(f"{name}: {type(error).__name__}: {error}", "nothing else depends on it")


def _asked(targets: Targets, out: Outgoing) -> Iterator[tuple[str, Callable[[], str]]]:
    message = out.message
    page = Path(targets.page) if targets.page is not None else None
    if targets.github:
        yield "github", lambda: _github(out)
    if (file := targets.junit) is not None:
        yield "junit", lambda: _written(out, file, junit.junit_xml(out.report, message))
    if (metrics := targets.prometheus) is not None:
        yield "prometheus", lambda: _written(out, metrics, prometheus.textfile(out.report, message))
    if (url := targets.webhook) is not None:
        yield "webhook", lambda: webhook.send(message_of(out.public), url)
    if (endpoint := targets.otel) is not None:
        yield "otel", lambda: opentelemetry.send(out.report, message, _or_standard(endpoint))
    if (dsn := targets.sentry) is not None:
        yield "sentry", lambda: sentry.send(message_of(out.public), _or_standard(dsn))
    if (run := targets.wandb) is not None:
        yield "wandb", lambda: wandb.send(message, run, render_text(out.report), page)
    if (run_id := targets.mlflow) is not None:
        yield "mlflow", lambda: mlflow.send(message, run_id, render_text(out.report), page)
    if (directory := targets.tensorboard) is not None:
        yield "tensorboard", lambda: tensorboard.write(message, directory, render_markdown(out.report))


def _or_standard(value: str) -> str | None:
    return None if value == STANDARD else value


def _written(out: Outgoing, file: str, text: str) -> str:
    out.write(Path(file), text)
    return f"wrote {file}"


def _github(out: Outgoing) -> str:
    out.show(github.annotation(message_of(out.public), out.message.place, os.environ))
    summary = github.write_summary(out.public, os.environ)
    return "github: annotated" + (", and added to the step's summary" if summary else "")
