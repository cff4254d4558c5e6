"""`pytracer doctor`: what works on this machine, and why not. The checks are in `checks/`."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
import textwrap
from collections.abc import Sequence

import click

from pytracer._printable import printable
from pytracer.cli import checks
from pytracer.cli.progress import progress_bar
from pytracer.cli.settings import Settings, effective
from pytracer.cli.terminal import show, show_json

HELP = """Check what works on this machine, and why not.

Loads the recorder, preloads it into a child process, and lets a child crash: a second. With --full, children also
import torch, and must record storages, DDP, FSDP and devices: ten seconds and more. Exit status 1: something essential
is missing, and nothing can be recorded.

\b
Examples:
  pytracer doctor
  pytracer doctor --full
  pytracer doctor --config                  settings of pytracer.toml, variables, defaults
  pytracer doctor --json | jq '.checks[] | select(.result != "works")'
"""


@click.command("doctor", help=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option(
    "--config", is_flag=True, help="Print instead each setting, and whether the environment or a file made it."
)
@click.option("--full", is_flag=True, help="Also try what is recorded of torch, in children that import it.")
@click.pass_context
def command(context: click.Context, as_json: bool, config: bool, full: bool) -> int:
    """See HELP."""
    if config:
        _show_settings(context, as_json)
        return 0
    with progress_bar("Checking", wanted=not as_json):
        found = list(checks.run_checks(full=full))
    ok = all(check.result != checks.MISSING for check in found if check.essential)
    if as_json:
        document = {
            "schema": "pytracer-doctor",
            "version": 1,
            "ok": ok,
            "full": full,
            "checks": [dataclasses.asdict(check) for check in found],
        }
        show_json(json.dumps(document, indent=2) + "\n")
    else:
        show(table(found, shutil.get_terminal_size((100, 24)).columns) + "\n")
        if not full:
            show("\nNot tried: whether storages, DDP, FSDP and devices are recorded; `pytracer doctor --full` does.\n")
        if not ok:
            show("\nNothing can be recorded here until the missing parts above are fixed.\n")
    return 0 if ok else 1


def _show_settings(context: click.Context, as_json: bool) -> None:
    """What a command would do without options; docs/guide/settings.md has the precedence."""
    root = context.find_root()
    settings: Settings = root.obj
    names = ("run", "inspect", "notify")
    commands = {name: importlib.import_module(f"pytracer.cli.{name}").command for name in names}
    found = list(effective(settings, commands))
    path = str(settings.path) if settings.path is not None else None
    if as_json:
        rows = [dataclasses.asdict(setting) for setting in found]
        show_json(json.dumps({"schema": "pytracer-settings", "version": 1, "file": path, "settings": rows}) + "\n")
        return
    lines = [
        f"file  {printable(path) if path else 'none: no pytracer.toml, and no [tool.pytracer] in a pyproject.toml'}"
    ]
    lines += [f"ignored  {printable(str(ignored))}: it belongs to another user" for ignored in settings.ignored]
    lines.append("an option on the command line comes before the environment, the file and the default")
    for setting in printable(found):
        value = "-" if setting.value is None else setting.value
        source = setting.variable if setting.source == "environment" else setting.source
        lines.append(f"{setting.command:<8} {setting.option:<18} {value!s:<24} {source}")
    show("\n".join(lines) + "\n")


def table(found: Sequence[checks.Check], width: int) -> str:
    """Columns of text: check, result, observation; the next step below it."""
    found = printable(found)
    first = max(len(check.id) for check in found) + 2
    second = len(checks.MISSING) + 2
    room = max(width - first - second, 40)
    lines = [f"{'check':<{first}}{'result':<{second}}why"]
    for check in found:
        texts = textwrap.wrap(check.detail, room, break_long_words=False, break_on_hyphens=False)
        if check.next:
            texts += textwrap.wrap(f"next: {check.next}", room, break_long_words=False, break_on_hyphens=False)
        lines.append(f"{check.id:<{first}}{check.result:<{second}}{texts[0] if texts else ''}".rstrip())
        lines += [" " * (first + second) + text for text in texts[1:]]
    return "\n".join(lines)
