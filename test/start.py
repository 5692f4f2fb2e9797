"""Runs files of tests, two at a time, each in a process that is forked from one that has imported NumPy and PyTorch, as that import is two seconds of a
processor: start.py FOLDER FILE… A file's output goes to FOLDER. As each ends a line: FILE, the exit status, its seconds, those of processors, of all that it
has started, too. FT_CHECK_OF=PREFIX: files of this beginning have their kernels compiled with ftc --check-memory."""
import atexit
import contextlib
import os
import sys
import time
import traceback
import types

AT_ONCE = 2  # most of them wait for one thread at a time


def become(file, arguments):
    """In a forked process: what `python FILE ARGUMENTS…` does. Gives the status to exit with."""
    sys.argv = [file, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    main = types.ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"] = main
    try:
        with open(file, encoding="utf-8") as source:
            exec(compile(source.read(), file, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def fork(file, arguments, log):
    """Starts a file with its output in a log. Gives the process. The caller has no finalizers (of a TemporaryDirectory, say), which would run in both."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    with open(os.devnull) as nothing, open(log, "wb") as out:
        os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    status = become(file, arguments)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # through no `finally` of whoever called this


def log_of(folder, file):
    return os.path.join(folder, file.replace("/", "-") + ".log")


def end_one(began):
    process, status, usage = os.wait4(-1, 0)
    file, start = began.pop(process)
    print(file, os.waitstatus_to_exitcode(status), round(time.monotonic() - start), round(usage.ru_utime + usage.ru_stime), flush=True)


def main():
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  NumPy, too
    folder, *files = sys.argv[1:]
    checks, began = os.environ.get("FT_CHECK_MEMORY", ""), {}
    for file in files:
        if len(began) >= AT_ONCE:
            end_one(began)
        prefix = os.environ.get("FT_CHECK_OF", "")
        os.environ["FT_CHECK_MEMORY"] = "1" if prefix and file.startswith(prefix) else checks
        began[fork(file, [], log_of(folder, file))] = file, time.monotonic()
    while began:
        end_one(began)


if __name__ == "__main__":
    main()
