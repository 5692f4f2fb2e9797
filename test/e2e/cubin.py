"""ftc --cubin: the artifact has machine code behind its PTX, and is PTX as before; ftrun takes it where it is for the GPU
at hand, and else the PTX, with a word where something is wrong. ptxas is test/fake/ptxas, and NVIDIA's where there is one."""
import base64
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import cuda
import support

FAKE_PTXAS = os.path.join(support.ROOT, "test", "fake")
SOURCE = os.path.join(cuda.INPUTS, "tiny.ft")


def without_nvidia(folder):
    """A PATH in which there is no ptxas but that of `folder`."""
    return {"PATH": folder + ":/nowhere", "CUDA_HOME": "/nowhere"}


class Cubin(cuda.CudaCase):
    def ftc(self, *flags, name="model.ptx", check=True, **environment):
        done = support.run("ftc", SOURCE, "-o", self.path(name), *flags, check=check, env={**without_nvidia(FAKE_PTXAS), **environment})
        return self.path(name), done

    def parts(self, artifact):
        with open(artifact) as file:
            text = file.read()
        ptx, mark, rest = text.partition("//@cubin ")
        lines = rest.splitlines()
        code = b"".join(base64.b64decode(line.removeprefix("//@cubin-data ")) for line in lines[1:])
        return ptx, (mark + lines[0] if mark else ""), code

    def trained(self, artifact, **options):
        log = self.path("log.jsonl")
        done = self.ftrun(artifact, "--steps", 12, "--log-jsonl", log, "--set", "train.log.every=1", "--set", "train.eval.every=0", FT_KEEP_DATA=0, FT_CUDA_MODULES=1, **options)
        numbers = [line["loss"] for line in support.read_jsonl(log)]
        os.unlink(log)
        report = self.report()
        return numbers, done.stderr, done.stdout, (report["cubin"], report["compiled"])

    def test_the_file(self):
        """The PTX of before, and the code that ptxas made of it."""
        plain, _ = self.ftc(name="plain.ptx", PATH="/nowhere")
        artifact, done = self.ftc("--cubin")
        self.assertEqual(done.stdout + done.stderr, "")
        ptx, head, code = self.parts(artifact)
        with open(plain) as file:
            self.assertEqual(file.read(), ptx)
        self.assertRegex(head, r"^//@cubin 1 sm_80 bytes=%d ptx=[0-9a-f]{16} sum=[0-9a-f]{16}$" % len(code))
        self.assertEqual(code[64:-1].decode(), ptx)
        with open(artifact) as file:
            self.assertLessEqual(max(len(line) for line in file if line.startswith("//@cubin")), 150)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(".") or "~" in name or ".tmp" in name], [])
        first = open(artifact, "rb").read()
        self.ftc("--cubin")
        self.assertEqual(open(artifact, "rb").read(), first)
        info = support.run("ftrun", "info", artifact).stdout
        self.assertEqual(info.replace("model.ptx", "plain.ptx"), support.run("ftrun", "info", plain).stdout)

    def test_it_is_loaded_where_it_fits(self):
        truth = self.trained(self.ftc(name="plain.ptx")[0])[0]
        for gpu, takes in (("sm_80", (80, 86, 89)), ("sm_90a", (90,))):
            artifact, _ = self.ftc("--gpu", gpu, "--cubin")
            for capability in takes:
                got, said, out, counts = self.trained(artifact, CC=capability)
                self.assertEqual((said, counts), ("", (1, 0)))
                self.assertIn(f"sm_{capability}), CUDA 12.4, cubin of {gpu}", out)
                if gpu == "sm_80":
                    self.assertEqual(got, truth)
        artifact, _ = self.ftc("--gpu", "sm_80", "--cubin")
        got, said, out, counts = self.trained(artifact, CC=90)
        self.assertEqual((got, said, counts), (truth, "", (0, 1)))
        self.assertIn("sm_90), CUDA 12.4, PTX (the cubin is for sm_80)", out)
        got, said, _, counts = self.trained(artifact, CC=80, FT_CUDA_CUBIN="0")
        self.assertEqual((got, said, counts), (truth, "", (0, 1)))
        plain = self.ftrun(artifact, "--steps", 12, "--log-jsonl", self.path("s.jsonl"), "--set", "train.log.every=1", "--set", "train.eval.every=0", device="sim")
        self.assertEqual([line["loss"] for line in support.read_jsonl(self.path("s.jsonl"))], truth, plain.stderr)

    def test_a_driver_that_does_not_take_it(self):
        artifact, _ = self.ftc("--cubin")
        truth = self.trained(artifact, CC=80)[0]
        got, said, _, counts = self.trained(artifact, CC=80, CUBIN_FAILS=1)
        self.assertEqual((got, counts), (truth, (0, 1)))
        self.assertIn("the driver, for CUDA 12.4, does not take its cubin (CUDA_ERROR_NO_BINARY_FOR_GPU) and compiles the PTX", said)
        self.assertEqual(said.count("\n"), 1)

    def test_damage(self):
        """Of the lines, of the code in them, and of the PTX before them: the PTX serves, and a word says why."""
        artifact, _ = self.ftc("--cubin")
        truth = self.trained(artifact, CC=80)[0]
        with open(artifact, "rb") as file:
            whole = file.read()
        at = whole.index(b"//@cubin ")
        data = whole.index(b"//@cubin-data ") + 14
        body, tail = whole[:at], whole[at:]
        number = re.search(rb"bytes=(\d+)", tail).group(1)
        cases = {
            "it is damaged": [whole[:data + 40] + (b"B" if whole[data + 40:data + 41] != b"B" else b"C") + whole[data + 41:], whole[:-200], whole[:data], whole + b"//@cubin-data AAAA\n", whole + b"ret;\n",
                              whole[:data] + b"####" + whole[data + 4:], whole[:data] + b"\xff\0\xff\0" + whole[data + 4:],
                              body + tail.replace(b"bytes=" + number, b"bytes=" + str(int(number) - 1).encode(), 1), body + tail.replace(b"bytes=" + number, b"bytes=9999999999", 1)],
            "its first line is damaged, or of a newer ft": [body + tail.replace(b"@cubin 1 ", b"@cubin 2 ", 1), body + tail.replace(b"sm_80", b"sm_\x1b[1m", 1), body + b"//@cubin \n", body + b"//@cubin 1 sm_80"],
            "the PTX before it is not the one that it was made of": [body + b"\n" + tail],
        }
        for why, files in cases.items():
            for content in files:
                with open(artifact, "wb") as file:
                    file.write(content)
                got, said, _, counts = self.trained(artifact, CC=80)
                self.assertEqual((got, counts), (truth, (0, 1)), why)
                self.assertIn(f"its cubin is not used: {why}; the driver compiles the PTX", said)
                self.assertEqual(said.count("\n"), 1, said)

    def test_refusals(self):
        (_, done) = self.ftc("--cubin", check=False, PATH="/nowhere:relative::")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--cubin needs NVIDIA's ptxas (of a CUDA toolkit), which is neither in PATH nor in $CUDA_HOME/bin (without CUDA_HOME: /usr/local/cuda/bin); without --cubin", done.stderr)
        (_, done) = self.ftc("--cubin", check=False, FT_FAKE_PTXAS_FAILS="ptxas fatal : Value 'sm_80' is not defined\nfor option 'gpu-name'")
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not compile the PTX for sm_80 (status 1): ptxas fatal : Value 'sm_80' is not defined;for option 'gpu-name'; without --cubin", done.stderr)
        self.assertFalse(os.path.exists(self.path("model.ptx")))
        _, done = self.ftc("--cubin", FT_FAKE_PTXAS_SAYS="ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n")
        self.assertIn("warning: --cubin: ptxas info : (C7510) Potential Performance Loss", done.stderr)
        for output, words in ((["-o", self.path("x.so")], "--cubin is for a GPU, whose code is a .ptx"), (["--emit=ptx"], "--cubin is for an artifact"), (["--gpu", "sm_80", "--memory"], "--cubin is for an artifact")):
            done = support.run("ftc", SOURCE, "--cubin", *output, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_home_of_cuda(self):
        bin_folder = self.path("home", "bin")
        os.makedirs(bin_folder)
        shutil.copy(os.path.join(FAKE_PTXAS, "ptxas"), bin_folder)
        artifact, _ = self.ftc("--cubin", PATH="/nowhere", CUDA_HOME=self.path("home"))
        self.assertTrue(self.parts(artifact)[2])

    def test_waits_are_bounded_in_it_too(self):
        artifact, _ = self.ftc("--gpu", "sm_90a", "--cubin", "--debug-waits")
        _, said, _, counts = self.trained(artifact, CC=90)
        self.assertEqual(counts, (1, 0), said)

    @unittest.skipUnless(shutil.which("ptxas"), "ptxas is not installed")
    def test_what_nvidia_makes(self):
        """The bytes that ptxas gives by itself, in a file that ptxas still takes, and that this driver, which is none of NVIDIA's, refuses."""
        environment = {"PATH": os.environ["PATH"]}
        artifact, _ = self.ftc("--gpu", "sm_90a", "--cubin", **environment)
        code = self.parts(artifact)[2]
        for source in (self.ftc("--gpu", "sm_90a", name="plain.ptx")[0], artifact):
            subprocess.run(["ptxas", "-arch=sm_90a", source, "-o", self.path("own.cubin")], check=True)
            with open(self.path("own.cubin"), "rb") as file:
                self.assertEqual(len(file.read()), len(code))
        self.assertEqual(code[:4] + code[18:20], b"\x7fELF\xbe\0")
        _, said, _, counts = self.trained(artifact, CC=90)
        self.assertIn("does not take its cubin", said)  # it is whole: nothing about damage
        self.assertEqual(counts, (0, 1))


if __name__ == "__main__":
    support.main()
