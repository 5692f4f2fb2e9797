"""commands.py BIN FILE [--update]: mistakes at the command line and in data, one behind each `//--- name`: a line `m.ft: OLD => NEW` makes v.ft
of the model below, `$ ...` is the command, and `// WANT:` lines are its exit code and all errors, warnings and notes that it gives,
whole. --update writes what is said now: read it before it is kept."""
import os
import re
import shlex
import subprocess
import sys
import tempfile

import numpy
import sections

MODEL = """hyper width: int = 8
model M(x: f32[B, 8], y: i32[B]) {
  h = relu(Linear(width, name="fc1")(x))
  logits = Linear(4, name="fc2")(h)
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
  output logits
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); shuffle = true }
train { model = M; data = D; batch = 16; epochs = 1; optimizer = adamw(lr=0.01); eval every 1 epoch; log { every = 100 steps } }
"""


def write_files(folder, bin_):
    rng = numpy.random.default_rng(0)
    x, y = rng.normal(size=(64, 8)).astype("f4"), rng.integers(0, 4, 64).astype("i4")
    arrays = {
        "x": x, "y": y, "y_float": y.astype("f4"), "y_one_hot": numpy.eye(4, dtype="f4")[y], "y_of_9": numpy.full(64, 9, "i4"), "y_short": y[:63],
        "x_narrow": x[:, :7], "x_square": x.reshape(64, 2, 4), "x_fortran": numpy.asfortranarray(x), "x_empty": x[:0], "x_few": x[:3], "y_few": y[:3],
    }
    for name, value in arrays.items():
        numpy.save(os.path.join(folder, name + ".npy"), value)
    numpy.savez(os.path.join(folder, "both.npz"), images=x, labels=y)
    files = {"table.csv": b"a,b,label\n1,2,0\n", "model.pt": b"PK\3\4----------", "old.pth": b"\x80\2}q\0----------", "m.ft": MODEL.encode()}
    for name, value in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(value)
    os.mkdir(os.path.join(folder, "empty"))
    for command in (["ftc", "m.ft", "-o", "m.so"], ["ftrun", "m.so", "--save", "w.safetensors", "--set", "train.checkpoint.dir=ck"]):
        subprocess.run([os.path.join(bin_, command[0]), *command[1:]], cwd=folder, check=True, capture_output=True)
    for name, size in (("m.so", 9000), ("w.safetensors", 400)):
        with open(os.path.join(folder, name), "rb") as file, open(os.path.join(folder, "cut_" + name), "wb") as cut:
            cut.write(file.read()[:size])


def said(bin_, folder, change, command):
    if change:
        old, new = change.split(" => ")
        assert MODEL.count(old) >= 1, old
        with open(os.path.join(folder, "v.ft"), "w") as file:
            file.write(MODEL.replace(old, new, 1))
    tool, *arguments = shlex.split(command)
    environment = {key: value for key, value in os.environ.items() if key != "CLICOLOR_FORCE"}
    run = subprocess.run([os.path.join(bin_, tool), *arguments], cwd=folder, capture_output=True, text=True, timeout=60, env=environment)
    lines = [f"[{run.returncode}]"]
    for line in run.stderr.splitlines():
        if re.match(r"(\S+:\d+:\d+: )?(error|warning|note): |(ftc|ftopt): |it knows", line):
            lines.append(line)
    return lines


def main():
    bin_ = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, bin_)

        def said_of(text):
            lines = text.splitlines()
            change = next((line[len("m.ft: "):] for line in lines if line.startswith("m.ft: ")), None)
            (command,) = [line[2:] for line in lines if line.startswith("$ ")]
            return said(bin_, folder, change, command)
        return sections.check(sys.argv[2], "--update" in sys.argv, said_of)


sys.exit(main())
