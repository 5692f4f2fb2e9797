"""Talks to build/unit/random_program: one process answers many requests; a crash or a hang is an answer too."""
import glob
import os
import re
import select
import shutil
import subprocess
import tempfile
import weakref

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("FT_BUILD", os.path.join(ROOT, "build")))


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def new_folder():
    """It says whose it is: what a process that was killed has left, the next one removes."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), "ft-random-of-*")):
        owner = re.search(r"-of-(\d+)-", path)
        if owner and not is_running(int(owner[1])):
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"ft-random-of-{os.getpid()}-")


class Driver:
    """folder: an existing one, which is kept."""

    def __init__(self, timeout=120, folder=None):
        self.timeout, self.process = timeout, None
        self.folder = folder or new_folder()
        if not folder:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self):
        self.errors = open(self.path("stderr"), "w+b")
        self.process = subprocess.Popen([os.path.join(BUILD, "unit", "random_program")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, bufsize=0)

    def end(self):
        """Without a kill: the program writes what it has counted of its own branches as it ends."""
        if self.process:
            self.process.stdin.close()
            self.process.wait()
        self.process = None

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None
            self.errors.close()

    def ask(self, program, gpu="cpu", without=None, dump=None):
        """(verdict, text): ok, refused, fail, crash or hang."""
        with open(self.path("p.ft"), "w") as file:
            file.write(program.text())
        program.write_values(self.path("p.values"))
        return self.ask_files(self.path("p.ft"), self.path("p.values"), gpu, without, dump)

    def ask_files(self, program, values, gpu, without, dump):
        if not self.process:
            self.start()
        line = "\t".join([program, values, gpu, without or "-", dump or "-"]) + "\n"
        try:
            self.process.stdin.write(line.encode())
        except BrokenPipeError:
            pass
        answer = b""
        while not answer.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], self.timeout)[0]:
                self.stop()
                return "hang", f"no answer within {self.timeout} s"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                code = self.process.wait()
                self.errors.seek(0)
                text = self.errors.read().decode(errors="replace")[-2000:].replace("\n", " ")
                self.stop()
                return "crash", f"exit {code}: {text}"
            answer += more
        verdict, _, text = answer.decode(errors="replace").strip().partition("\t")
        if (verdict, text) == ("fail", "no .so"):  # test/unit/codegen_help.h
            raise OSError("the compiled program could not be written")
        return verdict, text
