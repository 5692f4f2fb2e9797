"""ft.compile: runs ftc."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from typing import Mapping, Optional, Union

_Value = Union[str, int, float, bool]


class CompileError(ValueError):
    """What ftc says of a program: file, line, column, caret."""


class CompileWarning(UserWarning):
    """What ftc warns of in a program that it has compiled, likewise."""


def _warnings_of(said: str) -> "list[str]":
    """Each with the lines and notes that follow it."""
    found: "list[str]" = []
    for line in said.splitlines():
        begins = re.match(r"(\S.*: )?(warning|error): ", line) is not None
        if begins or not found:
            found.append(line)
        else:
            found[-1] += "\n" + line
    return [text for text in found if text.strip()]


def _text(value: _Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def compile(source: "str | os.PathLike[str]", output: "str | os.PathLike[str] | None" = None, *, hypers: Optional[Mapping[str, _Value]] = None,
            sets: Optional[Mapping[str, _Value]] = None, preset: Optional[str] = None, ftc: Optional[str] = None, flags: "list[str] | tuple[str, ...]" = ()) -> str:
    """Compiles a .ft file and returns the artifact's path: `output`, or the source's name with .so.

    What ftc warns of is a CompileWarning of Python's module warnings, one for each.
    hypers and sets are ftc's -D and --set; ftc is the compiler (FTC in the environment, else the one on the PATH).
    """
    program = ftc or os.environ.get("FTC") or shutil.which("ftc")
    if not program:
        raise FileNotFoundError("ftc is not on the PATH: install the package ft, set FTC to a build's bin/ftc, or compile elsewhere and open the artifact")
    path = os.fspath(output) if output is not None else os.path.splitext(os.fspath(source))[0] + ".so"
    command = [program, os.fspath(source), "-o", path, *flags]
    for name, value in (hypers or {}).items():
        command += ["-D", f"{name}={_text(value)}"]
    for key, value in (sets or {}).items():
        command += ["--set", f"{key}={_text(value)}"]
    if preset is not None:
        command += ["--preset", preset]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode == 1 or done.returncode == 2:
        raise CompileError(done.stderr.strip())
    if done.returncode:
        raise RuntimeError(f"{program} failed with exit code {done.returncode}: {done.stderr.strip()}")
    for text in _warnings_of(done.stderr):
        warnings.warn(text, CompileWarning, stacklevel=2)
    return path
