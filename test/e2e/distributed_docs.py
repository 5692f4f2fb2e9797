"""Every command of docs/distributed.md is run, on fewer ranks: SLURM's and torchrun by stubs that set their variables, GPUs by the
fake driver and the fake NCCL. A command that is new there must be added here."""
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

DOC = os.path.join(support.ROOT, "docs", "distributed.md")
FAKE = os.path.join(support.BUILD, "fake")
MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  loss = mean(cross_entropy(Linear(4, name="head")(relu(Linear(16, name="fc1")(x))), y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = 2; seed = 5; optimizer = adam(lr=0.01); epochs = 2; checkpoint { every = 5 steps } }
"""
# what SLURM makes of a script's #SBATCH lines, for so many tasks on one machine
SBATCH = """#!/bin/bash
grep -q '^#SBATCH .*--ntasks-per-node' "$1" || exit 9
SLURM_JOB_ID=17 SLURM_NTASKS=TASKS exec bash "$1"
"""
# srun's flags, then the command in every task; PMIx is mpirun's
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec mpirun -q --oversubscribe --bind-to none ROOT -n "$SLURM_NTASKS" task "$@"
"""
TASK = """#!/bin/bash
export SLURM_PROCID=$OMPI_COMM_WORLD_RANK SLURM_LOCALID=$OMPI_COMM_WORLD_LOCAL_RANK SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=$SLURM_NTASKS
exec "$@"
"""
# torchrun's variables for the ranks of one machine (Debian's own fails on its default flags with Python 3.11)
TORCHRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do
  [[ "$1" == --nproc_per_node ]] && ranks=$2
  [[ "$1" == --no_python ]] && { shift; break; } || shift 2
done
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=localhost MASTER_PORT=PORT TORCHELASTIC_RUN_ID=docs
for ((rank = ranks - 1; rank > 0; rank--)); do RANK=$rank LOCAL_RANK=$rank "$@" & done
RANK=0 LOCAL_RANK=0 "$@"; code=$?
wait; exit $code
"""
# a command's first words: what is replaced in it; None: not run
COMMANDS = [
    ("apt install", None),
    ("ftc model.ft --auto", [("gpus=64", "gpus=2")]),
    ("ftc ", []),
    ("ftrun --ranks 4", []),
    ("ftrun --gpus 4", []),
    ("ftrun --elastic", [("2:8", "1:4")]),
    ("mpirun --hostfile", [("-n 16", "-n 4"), ("ppr:8:node", "ppr:4:node"), ("/shared/data", ".")]),
    ("mpirun -n 4", []),
    ("torchrun", [("--nnodes 2", "--nnodes 1"), ("--nproc_per_node 8", "--nproc_per_node 2"), ("node0:29400", "localhost:0")]),
]


def blocks(text):
    """What is indented: one command, or a script with its lines."""
    found, script = [], []
    for line in text.splitlines() + [""]:
        if script and line.startswith("    "):
            script.append(line[4:])
            continue
        if script:
            found.append("\n".join(script) + "\n")
            script = []
        if line.startswith("    #!"):
            script = [line[4:]]
        elif re.match(r"    (apt|ft\w+|mpirun|torchrun|srun|sbatch) ", line):
            found.append(line.strip())
    return found


class DistributedDocs(support.Case):
    def setUp(self):
        super().setUp()
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        numbers = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), numbers.standard_normal((64, 8)).astype("f4"))
        numpy.save(self.path("y.npy"), numbers.integers(0, 4, 64).astype("i4"))
        as_root = "--allow-run-as-root" if os.geteuid() == 0 else ""
        with socket.create_server(("localhost", 0)) as free:
            port = free.getsockname()[1]
        os.mkdir(self.path("stubs"))
        for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("task", TASK), ("torchrun", TORCHRUN)):
            path = self.path("stubs", name)
            with open(path, "w") as file:
                file.write(text.replace("TASKS", "4").replace("ROOT", as_root).replace("=PORT", f"={port}"))
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        for name, text in (("hosts", "localhost slots=4\n"), ("model.ft", MODEL)):
            with open(self.path(name), "w") as file:
                file.write(text)
        self.environment = dict(
            os.environ, PATH=":".join((self.path("stubs"), os.path.join(support.BUILD, "bin"), os.environ["PATH"])),
            FT_CUDA_LIBRARY=os.path.join(FAKE, "libfake_cuda.so"), FT_NCCL_LIBRARY=os.path.join(FAKE, "libfake_nccl.so"), FT_CUBLASLT="own",
            FT_FAKE_CUDA_COUNT="8", OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def run_line(self, command):
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, command + "\n" + said[-3000:])
        return said

    def run_block(self, block):
        if block.startswith("#!"):
            with open(self.path("job"), "w") as file:
                file.write(block.replace("/shared/data", "."))
            shutil.rmtree(self.path("runs", "a"), ignore_errors=True)
            self.assertRegex(self.run_line("sbatch job"), r"runs/a holds no checkpoint yet: the training starts\n[\s\S]*4 ranks")
            self.assertIn("resumed from runs/a/step-", self.run_line("sbatch job"))  # SLURM has put it into its queue once more
            return
        replaced = [of for words, of in COMMANDS if block.startswith(words)]
        self.assertTrue(replaced, f"{block}: a command of docs/distributed.md that this test does not know")
        if replaced[0] is None:
            return
        for old, new in replaced[0]:
            self.assertIn(old, block)
            block = block.replace(old, new)
        said = self.run_line(block)
        if re.match("ftrun|mpirun|torchrun", block):
            self.assertRegex(said, r"\b[24] ranks", block)

    def test_commands(self):
        with open(DOC) as file:
            found = blocks(file.read())
        self.assertGreater(len(found), 12)
        for name in ("model.so", "model.ptx"):
            self.run_line(f"ftc model.ft --set distributed.data=any -o {name}")
        for block in found:
            with self.subTest(block=block):
                self.run_block(block)
                shutil.rmtree(self.path("runs"), ignore_errors=True)


if __name__ == "__main__":
    support.main()
