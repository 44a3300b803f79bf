"""``torch-ir check``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.files import read_ir, unreadable
from torch_ir.cli.options import DIALECT, INPUT
from torch_ir.cli.progress import progress
from torch_ir.errors import counted, printable
from torch_ir.ir.diagnostics import Diagnostic, errors_among


@click.command
@click.argument("file")
@click.option("--no-types", is_flag=True, help="Do not derive the types again, which needs torch.")
@click.option(
    "--dialect",
    type=DIALECT,
    metavar="NAME",
    help="Check the rules of this dialect too, such as core_aten.",
)
@click.option(
    "--expect",
    "expectations",
    type=INPUT,
    metavar="PATH",
    help="Match the program's text against the FileCheck directives in this file.",
)
@click.option(
    "--prefix", default="CHECK", show_default=True, help="What the directives begin with."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    file: str,
    no_types: bool,
    dialect: str | None,
    expectations: str | None,
    prefix: str,
    as_json: bool,
) -> None:
    """Find everything that is wrong with the IR in FILE; exit status 1 if there is an error.

    First its structure: names, operators and their arguments, weights, functions, symbols. If that
    is sound, each node's shape and dtype is derived again from its operator and compared. An
    operator that a program may not call is a warning: such a program can be read, but not run.
    """
    ir = read_ir(file)
    findings = ir.check()
    if errors_among(findings) and not no_types:
        console.note("types were not checked, because the structure is not sound")
    elif findings and not no_types:
        console.note("types were not checked, because operators may not be called")
    elif not no_types:
        findings = _type_findings(ir)
    if dialect is not None:
        from torch_ir.dialects import verify

        findings = (*findings, *verify(ir, dialect, types=False))
    if expectations is not None:
        from torch_ir.ir.check.expectations import expect

        findings = (*findings, *expect(ir, _text_of(expectations), prefix=prefix))
    if as_json:
        console.write_json([_record(finding) for finding in findings])
    else:
        for finding in findings:
            console.result(str(finding))
        count = counted(len(findings), "finding")
        say = console.message if findings else console.result
        say(f"{printable(file)}: {count if findings else 'no findings'}")
    if errors_among(findings):
        raise click.exceptions.Exit(1)


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(Path(path), error, "Give a text file.") from None


def _type_findings(ir: Any) -> tuple[Diagnostic, ...]:
    from torch_ir import check_types

    with progress("deriving types"):
        return check_types(ir)


def _record(finding: Diagnostic) -> dict[str, str]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "node": finding.node,
        "expected": finding.expected,
        "got": finding.found,
        "location": "" if finding.location is None else str(finding.location),
    }
