"""`pytracer notify`: sends a report to the places where people already look."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytracer._errors import PytracerError, UsageError
from pytracer.cli.output import write_aside
from pytracer.cli.reports import given_or_latest, read_report, redacted
from pytracer.cli.terminal import say, show_plain
from pytracer.notify.extras import NotifyError

if TYPE_CHECKING:
    from pytracer.report.job import Report

SECONDS = 60
_F = TypeVar("_F", bound=Callable[..., Any])

EXAMPLES = """\b
Examples:
  pytracer notify runs/latest --junit pytracer.xml --prometheus /var/lib/node_exporter/pytracer.prom
  pytracer notify --webhook '$SLACK_WEBHOOK_URL' --sentry auto --otel http://localhost:4318
  pytracer notify --mlflow "$MLFLOW_RUN_ID" --wandb team/project/abc123 --tensorboard logs
  pytracer run --notify -- torchrun train.py         what [notify] of pytracer.toml names, if the job dies
"""


def _option(name: str, metavar: str, about: str, extra: str = "") -> Callable[[_F], _F]:
    needs = f" Needs pytracer[{extra}]." if extra else ""
    variable = f"PYTRACER_NOTIFY_{name.upper()}"
    return click.option(f"--{name}", metavar=metavar, envvar=variable, help=about + needs)


@click.command("notify", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--github/--no-github", default=None, envvar="PYTRACER_NOTIFY_GITHUB",
    help="Annotate the line, and add to the step's summary.  [default: if GITHUB_ACTIONS is true]",
)  # fmt: skip
@_option("junit", "FILE", "Write JUnit's XML: a test case for each process.")
@_option("prometheus", "FILE", "Write a textfile for node_exporter; its name ends in .prom.")
@_option("webhook", "URL", "Post Slack's JSON.")
@_option("otel", "ENDPOINT", "Export a span with an exception event by OTLP/HTTP; `auto`: by OTEL_ variables.", "otel")
@_option("sentry", "DSN", "Send an event; `auto`: to SENTRY_DSN.", "sentry")
@_option("wandb", "[ENTITY/]PROJECT/RUN", "Mark a run of W&B as failed, with the report.", "wandb")
@_option("mlflow", "RUN_ID", "Mark a run of MLflow as FAILED, with the report.", "mlflow")
@_option("tensorboard", "DIR", "Add the report to a log directory.", "tensorboard")
@_option("page", "FILE", "Attach this file in W&B and MLflow.  [default: the report as HTML]")
def command(runs: tuple[Path, ...], **values: Any) -> int:
    """Send a report to CI, metrics, trackers or people (docs/guide/notify.md).

    RUN is as for `pytracer inspect`. A value that begins with $ names an environment variable. What leaves by --github,
    --webhook and --sentry is redacted. Services are told of failures only. Exit status 1: one of them was not reached.
    """
    if not any(_resolved(values, os.environ).values()):
        raise UsageError("no place to send to was given", hint="name one, e.g. --junit FILE; see docs/guide/notify.md")
    return send_report(read_report(given_or_latest(runs)), values)


def send_report(report: Report, values: Mapping[str, Any]) -> int:
    """Sends a report; 1 if one place was not reached.

    Args:
        report: the report.
        values: the options of `pytracer notify`.
    """
    from pytracer.notify.targets import Outgoing, Targets, send_all

    status = 0
    out = Outgoing(report, redacted(report), write_aside, lambda text: show_plain(text, error=True))
    targets = Targets(**_resolved(values, os.environ))
    with tempfile.TemporaryDirectory(prefix="pytracer-") as directory:
        if targets.page is None and (targets.wandb or targets.mlflow):
            targets = replace(targets, page=_page(report, Path(directory) / "report.html"))
        for outcome in send_all(targets, out):
            status |= isinstance(outcome, PytracerError)
            say(outcome)
    return status


def _page(report: Report, path: Path) -> str | None:
    """The report as HTML; None without the library for it."""
    try:
        from pytracer.render.html.page import render_html
    except ModuleNotFoundError:
        say('no HTML is attached: pip install "pytracer[html]"')
        return None
    path.write_text(render_html(report), encoding="utf-8", errors="backslashreplace")
    return str(path)


def check_configured(context: click.Context) -> None:
    """For `run --notify`: fails before the job starts.

    Raises:
        UsageError: neither the environment nor a file names a place.
    """
    root = context.find_root()
    defaults = (root.default_map or {}).get("notify")
    with command.make_context("notify", [], default_map=defaults) as own:
        values = {name: value for name, value in own.params.items() if name != "runs"}
    if not any(_resolved(values, os.environ).values()):
        raise UsageError("--notify: no place to send to is set", hint="name some in [notify] of pytracer.toml")


def tell(directory: Path, report: Report, *, configured: bool) -> None:
    """For `run`, after a job that failed: as [notify] says, else an annotation in GitHub's workflows.

    The libraries of services run in a process of their own, which has a minute: the job's status waits for it.
    """
    from pytracer.notify.github import is_wanted

    if not configured:
        if is_wanted(os.environ):
            send_report(report, {"github": True})
        return
    words = [sys.executable, "-m", "pytracer", "notify", str(directory)]
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotifyError(f"sending took more than {SECONDS} s", f"do it again: pytracer notify {directory}") from None


def _resolved(values: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """With the values of variables, and GitHub's as its runner wants it."""
    from pytracer.notify.github import is_wanted

    found = {name: _value(name, value, environ) for name, value in values.items()}
    if found.get("github") is None:
        found["github"] = is_wanted(environ)
    return found


def _value(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    variable = value[1:].strip("{}")
    if variable not in environ:
        raise UsageError(f"--{name} is {value}, and the variable is not set", hint=f"set {variable}, or give the value")
    return environ[variable]
