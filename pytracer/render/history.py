"""Answers of `pytracer history` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pytracer._printable import printable
from pytracer._text import count_words, list_words
from pytracer.render.printing import Hanging, printed
from pytracer.render.style import Style
from pytracer.report import history as h


def render_history(answer: h.History, style: Style | None = None) -> str:
    """What was asked for, below one line about the store."""
    return printed(Group(*_blocks(printable(answer))), style or Style())


def seen_words(seen: h.Seen) -> str:
    """Whether such a death is in the history."""
    if not seen.deaths:
        return f"no such death in {seen.store} ({seen.fingerprint})"
    first, last = (seen.first_seen or "?")[:10], (seen.last_seen or "?")[:10]
    times = f"{_count(seen.deaths, 'time')} {f'on {first}' if first == last else f'from {first} to {last}'}"
    here = seen.on_this_host or 0
    if here == seen.deaths:
        where = "always on this host"
    else:
        where = f"on {_count(seen.hosts or 0, 'host')}" + (
            f", {here:,} times on this one" if here else ", never on this one"
        )
    with_torch = f", torch {list_words(seen.torch, 4)}" if seen.torch else ""
    return f"{times}, {where}{with_torch}: pytracer history --fingerprint {seen.fingerprint}"


def render_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], style: Style | None = None) -> str:
    """The result of SQL as a table."""
    table = _table(*((name, None) for name in names))
    for row in rows:
        table.add_row(*(printable(_value(item)) for item in row))
    return printed(Group(table, Text(count_words(len(rows), "row"), style="dim")), style or Style())


def probability_words(chance: float | None) -> str:
    """`1 in 3,000`; of very unlikely things the power of ten."""
    if chance is None:
        return "?"
    if chance >= 0.1:
        return f"{chance:.2f}"
    if chance < 1e-6:
        return "below 1 in 1,000,000"
    return f"1 in {1 / chance:,.0f}"


def _blocks(answer: h.History) -> Iterator[RenderableType]:
    yield Hanging(Text(about_words(answer), style="bold"))
    if answer.groups is not None:
        yield Text()
        yield from _groups(answer)
    if answer.nodes is not None:
        yield Text()
        yield from _nodes(answer.nodes)
    if answer.changes is not None:
        yield Text()
        yield from _changes(answer.changes)


def about_words(answer: h.History) -> str:
    """The store, and how much is in it."""
    if not answer.runs:
        return f"{answer.store}: no runs in these days."
    days = (
        f"from {answer.first_day} to {answer.last_day}"
        if answer.first_day != answer.last_day
        else f"of {answer.first_day}"
    )
    return f"{answer.store}: {_count(answer.deaths or 0, 'death')} in {_count(answer.runs, 'run')} {days}."


def _groups(answer: h.History) -> Iterator[RenderableType]:
    groups = answer.groups or []
    if not groups:
        yield Text("Nothing died.")
        return
    alone = len(groups) == 1
    for group in groups:
        title = Text(f"{group.deaths or 0:>7,}  ", style="bold red")
        title.append(group.summary or group.class_ or "unknown", style="bold")
        yield Hanging(title, 0)
        yield Hanging(Text(f"{group.fingerprint}, {group.class_}, {span_words(group)}, {host_words(group)}"), 9)
        if group.torch:
            yield Hanging(Text(f"torch {list_words(group.torch, 6)}", style="dim"), 9)
        if alone and group.directory:
            yield Hanging(Text(f"the latest: pytracer inspect {group.directory}"), 9)
    left = (answer.groups_total or 0) - len(groups)
    if left > 0:
        yield Text()
        yield Text(f"{_count(left, 'other cause')}: --limit {len(groups) + min(left, 50)} shows more.", style="dim")


def span_words(group: h.Group) -> str:
    """Its first and last day."""
    first, last = (group.first_seen or "?")[:10], (group.last_seen or "?")[:10]
    return f"on {first}" if first == last else f"{first} to {last}"


def host_words(group: h.Group) -> str:
    """On how many hosts, or on which one."""
    if not group.hosts:
        return "host unknown"
    if group.hosts == 1:
        return f"only on {group.host}"
    share = (group.host_deaths or 0) / (group.deaths or 1)
    most = f", {share:.0%} on {group.host}" if share > 0.5 else ""
    return f"on {group.hosts} hosts{most}"


def _nodes(nodes: Sequence[h.Node]) -> Iterator[RenderableType]:
    outliers = [node for node in nodes if node.outlier]
    said = f"Deaths begin more often than chance explains on {_count(len(outliers), 'host')}." if outliers else (
        "No host stands out: what the list begins with is to be expected of so many hosts."
    )  # fmt: skip
    yield Text(said, style="bold red" if outliers else "bold")
    table = _table(
        ("host", None),
        ("deaths", "right"),
        ("expected", "right"),
        ("runs", "right"),
        ("by chance", "right"),
        ("causes", None),
    )
    for node in nodes:
        causes = f"{_count(node.fingerprints or 0, 'fingerprint')}, most {node.class_}" if node.fingerprints else "-"
        table.add_row(
            Text(node.host or "?", style="bold red" if node.outlier else ""), f"{node.deaths or 0:,}",
            f"{node.expected or 0.0:,.1f}", f"{node.runs or 0:,}", probability_words(node.probability), causes,
        )  # fmt: skip
    yield table
    yield Hanging(
        Text(
            "Expected: if every rank were equally likely to be the first to die. Red: at most 5 % of such hosts are "
            "there by chance (Benjamini-Hochberg). One fingerprint on a host points at a program, many at the host.",
            style="dim",
        )
    )


def _changes(changes: Sequence[h.Change]) -> Iterator[RenderableType]:
    if not changes:
        yield Text("No cause of death became more frequent with a version beyond chance.", style="bold")
        return
    for change in changes:
        title = f"{change.by} {change.version}: {change.summary or change.class_}"
        yield Hanging(Text(title, style="bold"))
        now = f"{change.deaths or 0:,} deaths in {change.runs or 0:,} runs"
        before = f"{change.deaths_before or 0:,} in {change.runs_before or 0:,} with {change.before}"
        yield Hanging(
            Text(f"{change.fingerprint}, {now}, {before}; by chance {probability_words(change.probability)}"), 4
        )


def _table(*columns: tuple[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    for name, justify in columns:
        table.add_column(name, justify=justify or "left", overflow="fold")
    return table


def _value(item: Any) -> str:
    return "" if item is None else str(item)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
