"""`pytracer doctor`: what works on this machine, and why not. The checks are in `checks/`."""

from __future__ import annotations

import dataclasses
import json
import shutil
import textwrap
from collections.abc import Sequence

import click

from pytracer._printable import printable
from pytracer.cli import checks
from pytracer.cli.terminal import show, show_json

HELP = """Check what works on this machine, and why not.

Loads the recorder, preloads it into a child process, and lets a child crash. Exit status 1: something
essential is missing, and nothing can be recorded.

\b
Examples:
  pytracer doctor
  pytracer doctor --json | jq '.checks[] | select(.result != "works")'
"""


@click.command("doctor", help=HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(as_json: bool) -> int:
    """See HELP."""
    found = list(checks.run_checks())
    ok = all(check.result != checks.MISSING for check in found if check.essential)
    if as_json:
        document = {
            "schema": "pytracer-doctor",
            "version": 1,
            "ok": ok,
            "checks": [dataclasses.asdict(check) for check in found],
        }
        show_json(json.dumps(document, indent=2) + "\n")
    else:
        show(table(found, shutil.get_terminal_size((100, 24)).columns) + "\n")
        if not ok:
            show("\nNothing can be recorded here until the missing parts above are fixed.\n")
    return 0 if ok else 1


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
