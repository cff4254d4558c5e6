"""The command line: finds the sub-command, and converts errors into one line and an exit code.

A sub-command is a module of this package with a click command named `command`; it is imported when it is called,
so `pytracer --help` imports neither it nor what it needs. A command returns its exit code, or None for 0.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import shell_complete

from pytracer._errors import PytracerError
from pytracer._garbage import end_uncollected, without_collections
from pytracer._late import late_functions
from pytracer._version import __version__
from pytracer.cli.settings import Settings, find_settings
from pytracer.cli.streams import occupy_closed_streams
from pytracer.cli.terminal import flush, say, show_traceback, words

_NEEDED = {"msgspec": "msgspec", "rich": "rich"}
COMPLETION = "_PYTRACER_COMPLETE"  # set by the shell's function (docs/guide/settings.md)
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141  # 128 + SIGPIPE, as for any other program

COMMANDS = {
    "run": "Run a command, record its processes, and explain a crash or failure.",
    "inspect": "Explain how a recorded job ended.",
    "where": "Explain an address of a recorded process.",
    "attach": "Show what a running job is doing, and which rank waits for which.",
    "notify": "Send a report to CI, metrics, experiment trackers or people.",
    "export": "Write a recorded job as a trace for Perfetto, or as a memory snapshot.",
    "diff": "Show what differs between two runs.",
    "runs": "List the runs below runs/, and remove old ones.",
    "history": "Ask what happened to many jobs: the same crash again, bad hosts, regressions.",
    "digest": "Write what a report needs of this node's recordings into one small file.",
    "pack": "Write a run into one file that can be read on any machine.",
    "dump": "Print the raw contents of one recording.",
    "build": "Add the hooks for a torch that this pytracer has none for.",
    "doctor": "Check what works on this machine, and why not.",
}

# Those that read recordings, print and end.
_READERS = ("inspect", "where", "export", "diff", "digest", "pack", "dump")

EXAMPLES = """\b
Examples:
  pytracer run -- torchrun --nproc-per-node 2 train.py
  pytracer inspect runs/latest
  pytracer inspect runs/latest --json | jq .verdict
  pytracer doctor
"""


class _Commands(click.Group):
    """A group that imports a sub-command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in _READERS:
            ctx.find_root().with_resource(without_collections())
        command: click.Command = importlib.import_module(f"pytracer.cli.{cmd_name}").command
        settings: Settings | None = ctx.find_root().obj
        if settings is not None:
            settings.check(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            raise click.UsageError(f"there is no command {args[0]!r}; there are {', '.join(COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A black box for PyTorch training: explains which process died first, where, and why.",
    no_args_is_help=False,
)
@click.version_option(__version__, "--version", prog_name="pytracer")
@click.option("-v", "verbose", count=True, help="-vv: show the traceback of an error inside pytracer.")
def group(verbose: int) -> None:
    """See `help` above; `main` reads `verbose`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code.

    Args:
        arguments: without the program's name; None takes `sys.argv`.

    Returns:
        0 done, 1 could not, 2 usage, 3 findings, 130 interrupted, 141 closed pipe; for `run` the job's own status.
    """
    occupy_closed_streams()
    if COMPLETION in os.environ:
        return shell_complete(group, {}, "pytracer", COMPLETION, os.environ[COMPLETION])
    if arguments is not None:
        return _called(list(arguments))
    with late_functions("pytracer.analyze"):
        status = _called(sys.argv[1:])
    end_uncollected()
    return status


def _called(given: list[str]) -> int:
    verbose = 0
    try:
        settings = _settings()
        defaults = settings.defaults(os.environ)
        with group.make_context("pytracer", given, obj=settings, default_map=defaults) as context:
            verbose = context.params["verbose"]
            result = group.invoke(context)
        flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return _flushed(end.exit_code)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "pytracer"
        return _fail(f"{_sentence(error.format_message())}; see `{path} --help`", EXIT_USAGE)
    except click.ClickException as error:
        return _fail(_sentence(error.format_message()), error.exit_code)
    except PytracerError as error:
        if verbose > 1:
            show_traceback()
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _closed_pipe()
    except OSError as error:
        if verbose > 1:
            show_traceback()
        return _fail(f"{error.filename or 'writing the output'}: {error.strerror or error}", 1)
    except Exception as error:  # last resort: report internal errors in one line
        if verbose > 1:
            show_traceback()
        if isinstance(error, ModuleNotFoundError) and error.name in _NEEDED:
            package = _NEEDED[error.name]
            return _fail(f"this command needs {package}, which is not installed here; `pip install {package}`", 1)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        return _fail(
            f"a bug in pytracer: {type(error).__name__} at {where}: {words(error)}; "
            "`pytracer -vv ...` shows the traceback, please report it",
            1,
        )


def _settings() -> Settings:
    try:
        return find_settings(Path.cwd())
    except FileNotFoundError:  # the current directory was removed
        return Settings()


def _fail(message: str, code: int) -> int:
    try:
        flush()
        say(message)
    except OSError:
        pass
    return code


def _flushed(code: int) -> int:
    try:
        flush()
    except BrokenPipeError:
        return _closed_pipe()
    return code


def _closed_pipe() -> int:
    # The interpreter flushes stdout once more at its end, and would print an error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_CLOSED_PIPE


def _sentence(message: str) -> str:
    message = words(message).rstrip(".")
    return message[:1].lower() + message[1:]
