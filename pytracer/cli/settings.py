"""Settings from files: `pytracer.toml`, or `[tool.pytracer]` of pyproject.toml. A table for each command.

One precedence for everything: an option on the command line, then its environment variable, then the file, then the
default. The file is the nearest one, from the current directory upwards; a pytracer.toml comes before a pyproject.toml
beside it. Files of other users than root, this one and the directory's owner are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from pytracer._errors import UsageError

FILE, PROJECT = "pytracer.toml", "pyproject.toml"
# Options whose variable is read elsewhere, because a job without `pytracer run` obeys it, too.
VARIABLES = {
    ("run", "level"): "PYTRACER_LEVEL",
    ("run", "guard"): "PYTRACER_GUARD",
    ("run", "cuda_graphs"): "PYTRACER_CUDA_GRAPHS",
    ("run", "no_values"): "PYTRACER_NO_VALUES",
}
_SECRET = ("webhook", "sentry")


@dataclass(frozen=True)
class Settings:
    """What a file sets: by command, by parameter. `path` is None when there is no file."""

    path: Path | None = None
    ignored: tuple[Path, ...] = ()  # of other users
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def defaults(self, environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """For click's `default_map`: without what the environment sets, which comes first."""
        return {
            command: {
                name: value for name, value in values.items() if not environ.get(VARIABLES.get((command, name), ""))
            }
            for command, values in self.commands.items()
        }

    def check(self, command: click.Command) -> None:
        """Refuses names that are no options of a command.

        Raises:
            UsageError: there is one.
        """
        known = {param.name: param for param in command.params if isinstance(param, click.Option)}
        for name in self.commands.get(command.name or "", {}):
            if name not in known:
                option = name.replace("_", "-")
                raise UsageError(
                    f"{self.path}: [{command.name}] has {option!r}, which is no option of `pytracer {command.name}`",
                    hint=f"see `pytracer {command.name} --help`",
                )


def find_settings(directory: Path) -> Settings:
    """The settings for a directory.

    Raises:
        UsageError: the file is no TOML, or is not made of tables.
    """
    ignored: list[Path] = []
    trusted = {0, os.getuid(), _owner(directory)}
    for folder in (directory, *directory.parents):
        for name in (FILE, PROJECT):
            path = folder / name
            if (owner := _owner(path)) is None:
                continue
            if owner not in trusted:
                ignored.append(path)
            elif (found := _read(path)) is not None:
                return replace(found, ignored=tuple(ignored))
    return Settings(ignored=tuple(ignored))


def _owner(path: Path) -> int | None:
    """None if it does not exist, or cannot be looked at."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _read(path: Path) -> Settings | None:
    """The settings of one file; None for a pyproject.toml without ours."""
    import msgspec  # here: most commands find no file

    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="correct it, or remove it") from None
    if path.name == PROJECT and b"pytracer" not in data:
        return None
    try:
        document = msgspec.toml.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if path.name == PROJECT:
            return None  # another tool's business, and no reason not to run
        raise UsageError(f"{path} is no TOML: {error}", hint="correct it, or remove it") from None
    if path.name == PROJECT:
        document = document.get("tool", {}).get("pytracer")
        if document is None:
            return None
    if not isinstance(document, dict) or not all(isinstance(table, dict) for table in document.values()):
        raise UsageError(f"{path} has settings outside of a table", hint="put them into one, e.g. [run]")
    tables = {
        command: {name.replace("-", "_"): value for name, value in table.items()} for command, table in document.items()
    }
    return Settings(path, commands=tables)


@dataclass(frozen=True)
class Setting:
    """One option, as it is now. `source`: "environment", "file" or "default"."""

    command: str
    option: str
    value: object
    source: str
    variable: str | None


def effective(settings: Settings, commands: Mapping[str, click.Command]) -> Iterator[Setting]:
    """Every option that can be set outside of the command line, with its value and where it comes from."""
    for command_name, command in commands.items():
        settings.check(command)
        for option in command.params:
            if not isinstance(option, click.Option) or option.name == "help":
                continue
            variable = VARIABLES.get((command_name, option.name), _variable(option))
            table = settings.commands.get(command_name, {})
            name = f"--{option.name.replace('_', '-')}" if not option.opts else option.opts[-1]
            if variable is not None and os.environ.get(variable):
                yield Setting(command_name, name, _shown(option.name, os.environ[variable]), "environment", variable)
            elif option.name in table:
                yield Setting(command_name, name, _shown(option.name, table[option.name]), "file", variable)
            else:
                default = option.default if isinstance(option.default, (str, int, float, bool)) else None
                yield Setting(command_name, name, default, "default", variable)


def _shown(option: str, value: object) -> object:
    """A secret is not shown; the variable that holds one is."""
    return "(set)" if option in _SECRET and not str(value).startswith("$") else value


def _variable(option: click.Option) -> str | None:
    return option.envvar if isinstance(option.envvar, str) else None
