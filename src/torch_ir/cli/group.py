"""The group of commands: loads each when it is called, and shows errors without tracebacks."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import IO, Any, NoReturn

import click

from torch_ir.cli import console
from torch_ir.errors import TorchIRError, did_you_mean, printable

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 99}


def _remember_traceback(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.meta[console.SHOW_TRACEBACK] = True


TRACEBACK = click.Option(
    ["--traceback"],
    is_flag=True,
    expose_value=False,
    callback=_remember_traceback,
    help="Show the Python traceback of an error.",
)


def _import_first(_: click.Context, __: click.Parameter, places: tuple[str, ...]) -> None:
    for place in places:
        from torch_ir.user_code import import_module_of

        with console.only_results():
            import_module_of(place)


IMPORT = click.Option(
    ["--import"],
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_import_first,
    metavar="MODULE",
    help="A module or file.py to import first, such as a library of operators, passes or "
    "backends; may be repeated.",
)


class CommandFailedError(click.ClickException):
    """An error as the command line shows it: sentence, picture and remedy; exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it to stderr."""
        console.message(f"error: {self.message}", file)


class WrongUseError(click.UsageError):
    """Wrong usage as the command line shows it: as any other error; exit status 2."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it to stderr, below how the command is called."""
        told = f"Error: {printable(self.message)}"
        if self.ctx is not None:
            hint = f"Try '{self.ctx.command_path} --help' for help."
            told = f"{self.ctx.get_usage()}\n{hint}\n\n{told}"
        console.message(told, file)


class QuietCommand(click.Command):
    """A command during which torch's C++ code does not warn: of calls that no user wrote."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, which may import torch; it reads the level when it is imported."""
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        return super().parse_args(ctx, args)


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports the module of the one called."""

    def __init__(self, *args: Any, commands_by_name: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_by_name = dict(commands_by_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of use."""
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name; None if there is none."""
        if cmd_name not in self.commands_by_name:
            return None
        command: click.Command = import_module(f"torch_ir.cli.commands.{cmd_name}").command
        command.name = cmd_name
        command.context_settings = {**CONTEXT_SETTINGS, **command.context_settings}
        if TRACEBACK not in command.params:
            command.params += [IMPORT, TRACEBACK]
            if command.callback is not None:
                command.callback = console.only_results()(command.callback)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_by_name.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called, or raise a usage error that names the closest one."""
        name, *rest = args
        if not name.startswith("-") and name not in self.commands_by_name:
            hint = did_you_mean(name, self.commands_by_name)
            ctx.fail(f"there is no command {name!r}. {hint}".rstrip())
        return super().resolve_command(ctx, [name, *_imports_first(rest)])

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options before the command, of which some print and exit."""
        with _told(None):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it raises becomes a message and exit status 1."""
        with _told(ctx):
            return super().invoke(ctx)


@contextmanager
def _told(ctx: click.Context | None) -> Generator[None]:
    """Make what is raised inside a message and an exit status."""
    try:
        yield
    except click.UsageError as error:
        raise WrongUseError(error.format_message(), error.ctx) from None
    except click.ClickException as error:
        raise CommandFailedError(error.format_message()) from None
    except (click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:  # a shell's status for it; 1 would be a finding
        console.message("\nAborted!")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except TorchIRError as error:
        _fail(ctx, error, str(error))
    except OSError as error:
        if error.filename is not None:
            _fail(ctx, error, f"{error.filename}: {error.strerror}")
        if error.errno not in _FULL:
            _fault(ctx, error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to flush is lost anyhow
        _fail(ctx, error, f"cannot write to standard output: {error.strerror}")
    except MemoryError as error:
        _fail(ctx, error, "not enough memory")
    except Exception as error:  # noqa: BLE001 - a fault of ours is told as such, not as a traceback
        _fault(ctx, error)


def _imports_first(args: list[str]) -> list[str]:
    """The arguments with ``--import`` before options that print something and exit."""
    first: list[str] = []
    others: list[str] = []
    items = iter(args)
    for item in items:
        if item == "--import":
            first += [item, *islice(items, 1)]
        elif item.startswith("--import="):
            first.append(item)
        else:
            others += [item, *items] if item == "--" else [item]
    return first + others


INTERRUPTED = 130
"""The exit status after Ctrl-C."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""Why nothing more can be written to a file: it is full, broken or closed."""


def _fault(ctx: click.Context | None, error: Exception) -> NoReturn:
    _fail(
        ctx,
        error,
        f"{type(error).__name__}: {error}\nThis is a fault of torch-ir: please report it, "
        "with what --traceback shows.",
    )


def _fail(ctx: click.Context | None, error: Exception, message: str) -> NoReturn:
    if ctx is not None and ctx.meta.get(console.SHOW_TRACEBACK):
        console.message("".join(traceback.format_exception(error)).rstrip("\n"))
    sys.stdout.flush()
    raise CommandFailedError(message) from error
