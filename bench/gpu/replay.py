"""Runs one of ft's test programs on a GPU where there is no compiler.

  replay.py record STORE TEST.py [CLASS]   here: keeps what ftc makes of each source, as PTX
  replay.py play STORE TEST.py [CLASS]     there: ftc's answers come from STORE; ftrun runs on FT_DEVICE (cuda)

A program's text, and so the key under which an answer is kept, must be the same in both runs: the
tests draw their numbers from seeded generators."""
import hashlib
import os
import pickle
import runpy
import shutil
import subprocess
import sys

mode, store, test = sys.argv[1:4]
sys.argv = [test] + sys.argv[4:]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "test"))
import support

device = os.environ.get("FT_DEVICE", "cuda")
real_run = support.run
os.makedirs(store, exist_ok=True)


def key_of(arguments):
    """The command with file names replaced by what they hold."""
    digest, skip = hashlib.sha256(), False
    for argument in arguments:
        if skip:
            skip = False
            continue
        if argument == "-o":
            skip = True
            continue
        if os.path.isfile(argument):
            with open(argument, "rb") as file:
                digest.update(b"file" + file.read())
        else:
            digest.update(b"word" + argument.encode())
    return digest.hexdigest()[:24]


def output_of(arguments):
    return arguments[arguments.index("-o") + 1] if "-o" in arguments else None


def compile_to_ptx(arguments, options):
    """ftc tells the target by the output's name; the test may well have asked for a .so."""
    output = output_of(arguments)
    if not output:
        return real_run("ftc", *arguments, **options)
    ptx = os.path.splitext(output)[0] + ".gpu.ptx"
    done = real_run("ftc", *[ptx if a == output else a for a in arguments], **options)
    if os.path.exists(ptx):
        os.replace(ptx, output)
    return done


def compiler(arguments, options):
    place = os.path.join(store, key_of(arguments))
    output = output_of(arguments)
    if mode == "record":
        done = compile_to_ptx(arguments, options)
        with open(place + ".answer", "wb") as file:
            pickle.dump((done.returncode, done.stdout, done.stderr), file)
        if output and os.path.exists(output):
            shutil.copy(output, place + ".ptx")
        return done
    if not os.path.exists(place + ".answer"):
        raise AssertionError(f"ftc was never asked this when {store} was recorded: {' '.join(arguments)}")
    with open(place + ".answer", "rb") as file:
        code, out, err = pickle.load(file)
    if output and os.path.exists(place + ".ptx"):
        shutil.copy(place + ".ptx", output)
    done = subprocess.CompletedProcess(["ftc", *arguments], code, out, err)
    if options.get("check", True) and code != 0:
        raise AssertionError(err)
    return done


def run(tool, *arguments, **options):
    arguments = [str(a) for a in arguments]
    if tool == "ftc":
        return compiler(arguments, options)
    # recording runs nothing for long: what counts are the artifacts
    where = os.environ.get("FT_RECORD_DEVICE", "sim") if mode == "record" else device
    if tool == "ftrun" and "--device" in arguments:
        arguments[arguments.index("--device") + 1] = where
    elif tool == "ftrun" and arguments[0] not in ("info", "devices"):
        arguments += ["--device", where]
    return real_run(tool, *arguments, **options)


support.run = run
runpy.run_path(test, run_name="__main__")
