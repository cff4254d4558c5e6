"""`pytracer history`: what happened to all the jobs that were added to a store, and questions about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytracer._errors import InputError, UsageError
from pytracer.cli.output import checked_output, write_aside
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import say, show, show_json
from pytracer.render.style import COLOR_CHOICES

if TYPE_CHECKING:
    from pytracer.history.store import Store

STORE_VARIABLE = "PYTRACER_HISTORY"
ENGINES = ("ray", "spark")
VERSIONS = ("torch", "driver", "cuda", "python", "commit")

EXAMPLES = """\b
Examples:
  pytracer history add runs/* --store s3://team/pytracer     after each job, or for all of last year
  ls -d /scratch/*/runs/* | pytracer history add - --engine spark
  pytracer history --store s3://team/pytracer                what kills most, since when, on how many hosts
  pytracer history --fingerprint f2-6c03478c
  pytracer history --nodes                                   hosts on which more deaths begin than chance explains
  pytracer history --changes torch                           what became more frequent with a version
  pytracer history --sql "SELECT day, count(*) FROM deaths GROUP BY day ORDER BY day"
  pytracer history --html fleet.html
"""
_HELP = {"help_option_names": ["-h", "--help"]}
_store_option = click.option(
    "--store", metavar="URL", envvar=STORE_VARIABLE, show_envvar=True,
    help="A directory, or any URL that fsspec opens: s3://bucket/path, gs://..., az://...",
)  # fmt: skip


@click.group("history", epilog=EXAMPLES, context_settings=_HELP, invoke_without_command=True)
@_store_option
@click.option("--since", metavar="DAY", help="Only runs from this day on: 2026-11-01, or 30d for the last 30 days.")
@click.option("--until", metavar="DAY", help="Only runs up to this day.")
@click.option("--fingerprint", metavar="F", help="One cause of death, by its fingerprint or how that begins.")
@click.option("--nodes", is_flag=True, help="Hosts on which more deaths began than chance explains.")
@click.option("--changes", type=click.Choice(VERSIONS), help="Causes that became more frequent with a version.")
@click.option("--sql", metavar="SQL", help="Ask DuckDB: views runs, deaths, nodes, processes, findings, frames.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Rows to show.")
@click.option("--html", metavar="FILE", help="Write a page: deaths over time, causes, hosts, versions.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--color", type=click.Choice(COLOR_CHOICES), default="auto", show_default=True, help="Colour the text.")
@click.pass_context
def command(ctx: click.Context, /, store: str | None, **options: Any) -> None:
    """Ask what happened to many jobs: the same crash again, bad hosts, regressions (docs/guide/history.md).

    `history add` puts runs into a store, which is a folder of Parquet files; the questions are answered by DuckDB in
    this process. There is no server. Needs pytracer[history].
    """
    if ctx.invoked_subcommand is None:
        _ask(_opened(store), **options)


@command.command("add", context_settings=_HELP)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@_store_option
@click.option(
    "--commit",
    metavar="ID",
    help="The version of the training code.  [default: GIT_COMMIT, GITHUB_SHA or CI_COMMIT_SHA]",
)
@click.option("--driver", metavar="VERSION", help="The version of the GPU driver.")
@click.option(
    "--label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    help="Anything else to ask by, e.g. team=vision. May be repeated.",
)
@click.option("--url", metavar="URL", help="Where people find the report; {run} in it stands for the run's id.")
@click.option("--redact", is_flag=True, help="Replace what is private first, as `inspect --redact` does.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Read this many runs at once.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Read them on a cluster: RAY_ADDRESS or Spark's configuration names it. Paths and store must be shared.",
)
@click.pass_context
def add(
    ctx: click.Context, runs: Sequence[Path], store: str | None, commit: str | None, driver: str | None,
    labels: Sequence[str], url: str | None, redact: bool, jobs: int, engine: str | None,
) -> int:  # fmt: skip
    """Add finished runs to the store. Runs that it has are not added again, whoever adds them.

    RUN is as for `pytracer inspect`, bundles included; each is one job. `-` stands for the lines of stdin. Exit status
    1: some could not be read; all others were added.
    """
    from pytracer.cli import history_add

    target = _opened(store or _parents(ctx))
    given = _labels(labels, commit or _commit(), driver)
    read, paths = history_add.Reader(redact, given, url), history_add.listed(runs)
    new = known = failed = 0
    with progress_bar("Reading runs") as progress:
        if engine is None:
            outcomes = history_add.add_here(target, read, paths, jobs, progress)
        else:
            outcomes = history_add.add_on(engine, target, read, paths, progress)
        for outcome in outcomes:
            for message in outcome.failed:
                say(message)
            new, known = new + outcome.added.new, known + outcome.added.known
            failed += len(outcome.failed)
    words = [
        f"{new} added",
        *([f"{known} already there"] if known else []),
        *([f"{failed} not readable"] if failed else []),
    ]
    show(f"{target.url}: {', '.join(words)}\n")
    return 1 if failed else 0


@command.command("compact", context_settings=_HELP)
@_store_option
@click.pass_context
def compact(ctx: click.Context, store: str | None) -> None:
    """Make one file of the many of each day. Questions may be asked, and runs added, meanwhile."""
    target = _opened(store or _parents(ctx))
    target.require()
    before, after = target.compact()
    show(f"{target.url}: {before} files became {after}\n" if before else f"{target.url}: nothing to compact\n")


@command.command("forget", context_settings=_HELP)
@click.argument("keys", metavar="[RUN_KEY]...", nargs=-1, type=int)
@_store_option
@click.option("--older-than", metavar="AGE", help="Forget all runs of days before: 90d, or a day like 2026-01-01.")
@click.pass_context
def forget(ctx: click.Context, keys: Sequence[int], store: str | None, older_than: str | None) -> None:
    """Delete runs from the store: by their run_key (column of `runs`; negative ones after --), or by age.

    Their recordings are not touched. Do not compact at the same time.
    """
    if not keys and older_than is None:
        raise UsageError("nothing was named", "give keys of runs, or --older-than 90d")
    target = _opened(store or _parents(ctx))
    target.require()
    gone = target.forget(keys, _day(older_than, "--older-than") if older_than else None)
    show(f"{target.url}: {gone} forgotten\n")


def _ask(
    store: Store, *, since: str | None, until: str | None, fingerprint: str | None, nodes: bool, changes: str | None,
    sql: str | None, limit: int, html: str | None, force: bool, as_json: bool, color: str,
) -> None:  # fmt: skip
    from pytracer.history import questions
    from pytracer.history.database import Database
    from pytracer.render.history import render_history, render_rows
    from pytracer.render.json import render_json
    from pytracer.render.style import decide_style

    if sum((fingerprint is not None, nodes, changes is not None, sql is not None)) > 1:
        raise UsageError("one question at a time", "choose one of --fingerprint, --nodes, --changes and --sql")
    page = checked_output(html, force, "--html")
    days = (_day(since, "--since") if since else None, _day(until, "--until") if until else None)
    style = decide_style(color, sys.stdout, os.environ)
    with Database(store, days=days) as db:
        for path in db.damaged:
            say(f"{path} cannot be read and is left out; remove it, or add its runs again")
        if sql is not None:
            names, rows = db.user_rows(sql)
            show_json(_rows_json(names, rows)) if as_json else show(render_rows(names, rows, style), styled=style.color)
            return
        answer = questions.totals(db, store.url)
        everything = page is not None
        if everything or nodes:
            answer = _with(answer, nodes=questions.nodes(db, limit))
        if everything or changes:
            found = [item for by in ([changes] if changes else VERSIONS) for item in questions.changes(db, by, limit)]
            answer = _with(answer, changes=found)
        if everything or not (nodes or changes):
            groups, total = questions.groups(db, limit, fingerprint)
            if fingerprint is not None and not groups:
                raise InputError(f"no death has the fingerprint {fingerprint}", "`pytracer history` lists them")
            answer = _with(answer, groups=groups, groups_total=total)
        if everything:
            answer = _with(answer, periods=questions.periods(db))
    if page is not None:
        from pytracer.render.html.history import render_history_page

        write_aside(page, render_history_page(answer))
        say(f"{page}: open it in a browser")
    elif as_json:
        show_json(render_json(answer))
    else:
        show(render_history(answer, style), styled=style.color)


def _opened(url: str | None) -> Store:
    from pytracer.history.store import Store

    if not url:
        raise UsageError(
            "no store was given", f"name one with --store, {STORE_VARIABLE}, or `store` in [history] of pytracer.toml"
        )
    return Store(url)


def _parents(ctx: click.Context) -> str | None:
    store: str | None = ctx.parent.params["store"] if ctx.parent is not None else None
    return store


def _labels(labels: Sequence[str], commit: str | None, driver: str | None) -> dict[str, str]:
    out = {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not equals or not key:
            raise UsageError(f"{label!r} is no label", "write --label KEY=VALUE")
        out[key] = value
    return out | {key: value for key, value in (("commit", commit), ("driver", driver)) if value}


def _commit() -> str | None:
    return next(
        (os.environ[name] for name in ("GIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA") if os.environ.get(name)), None
    )


def _day(text: str, option: str) -> str:
    """`2026-11-01` as it is; `30d` as the day that long ago, UTC.

    Raises:
        UsageError: it is neither.
    """
    try:
        if text.endswith("d"):
            return (datetime.now(timezone.utc) - timedelta(days=int(text[:-1]))).date().isoformat()
        return date.fromisoformat(text).isoformat()
    except (ValueError, OverflowError):
        raise UsageError(f"{option} got {text!r}, which is no day", "give it 2026-11-01, or 30d") from None


def _with(answer: Any, **values: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(answer, **values)


def _rows_json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    import json

    document = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps({"rows": document}, indent=2, default=str) + "\n"
