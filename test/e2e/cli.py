"""One table has the flags of each program (tools/*_flags.c): docs/cli.md is what it prints, the man pages are read by groff without a
warning, bash completes by it, and each flag that it has is one that the program takes."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

PROGRAMS = ("ftc", "ftrun", "ftopt")
SHELL = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


def printed(program, form):
    return support.run(program, f"--help={form}").stdout


def newest_version():
    """The newest that CHANGELOG.md describes"""
    with open(os.path.join(support.ROOT, "CHANGELOG.md"), encoding="utf-8") as file:
        return re.search(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", file.read(), re.M)[1]


def rows(program):
    """(command or None, flag, value or None) of the page"""
    command = None
    for line in printed(program, "markdown").splitlines():
        if line.startswith("### "):
            command = line.split()[2] if line.split()[1:2] == [program] else "notes"
        found = re.match(r"\| `(-[-\w]*)(?:(?: |\[=)([^`]*))?`", line)
        if found and command != "notes":
            yield command, found[1], found[2]


class CommandLines(support.Case):
    def test_page(self):
        with tempfile.NamedTemporaryFile("r", suffix=".md") as file:
            subprocess.run([os.path.join(support.ROOT, "scripts/cli-docs"), file.name], check=True, env={**os.environ, "FT_BUILD": support.BUILD})
            with open(os.path.join(support.ROOT, "docs/cli.md")) as page:
                self.assertEqual(page.read(), file.read(), "docs/cli.md is old: run scripts/cli-docs")

    def test_manuals(self):
        for program in PROGRAMS:
            text = printed(program, "man")
            self.assertIn(f".SH NAME\n{program} \\- ", text)
            if shutil.which("groff"):
                told = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, text=True, capture_output=True)
                self.assertEqual((told.returncode, told.stderr), (0, ""))

    def test_shells_read_their_completion(self):
        for program in PROGRAMS:
            for shell, command in SHELL.items():
                text = printed(program, shell)
                self.assertIn(f"{program} --help={shell}", text)
                if shutil.which(shell):
                    with tempfile.NamedTemporaryFile("w") as file:
                        file.write(text)
                        file.flush()
                        told = subprocess.run([*command, file.name], text=True, capture_output=True)
                        self.assertEqual((told.returncode, told.stderr), (0, ""))

    def completed(self, program, *words, folder=None):
        """What bash has for the last word; it splits at `=`."""
        split = [part for word in words for part in re.split("(=)", word)]
        script = printed(program, "bash") + f"""
            compopt() {{ :; }}
            COMP_WORDS=({program} {' '.join(f"'{word}'" for word in split)}); COMP_CWORD={len(split)}
            _ft_{program}; printf '%s\\n' "${{COMPREPLY[@]}}" """
        told = subprocess.run(["bash", "-c", script], text=True, capture_output=True, check=True, cwd=folder)
        self.assertEqual(told.stderr, "")
        return sorted(told.stdout.split())

    def test_bash(self):
        self.assertEqual(self.completed("ftrun", "--dev"), ["--device="])
        self.assertEqual(self.completed("ftrun", "--device", "cu"), ["cuda", "cuda:0"])
        self.assertEqual(self.completed("ftrun", "--device=s"), ["sim"])
        self.assertEqual(self.completed("ftrun", "--set", "train.ba"), ["train.batch.auto=", "train.batch="])
        self.assertEqual(self.completed("ftrun", "eval", "--wei"), ["--weights="])
        self.assertEqual(self.completed("ftrun", "train", "--wei"), [])
        self.assertEqual(self.completed("ftrun", "tok"), ["tokenize"])
        self.assertEqual(self.completed("ftc", "--emit", "l"), ["llvm"])
        passes = [line.split()[0] for line in support.run("ftopt", "--list-passes").stdout.splitlines()]
        self.assertEqual(self.completed("ftc", "--stop-after", ""), sorted(passes))
        self.assertEqual(self.completed("ftc", "--dump=a"), sorted(["all", *(name for name in passes if name[0] == "a")]))
        self.assertEqual(self.completed("ftc", "--disable", "fu"), ["fuse"])
        self.assertEqual(self.completed("ftc", "--disable", "autod"), [])
        self.assertEqual(self.completed("ftc", "--disable", "fuse,lay"), ["fuse,layout"])
        self.assertEqual(self.completed("ftopt", "--passes", "shapes,autod"), ["shapes,autodiff"])
        for program, flag in (("ftc", "stop-after"), ("ftc", "dump"), ("ftopt", "passes")):
            for shell in ("zsh", "fish"):
                self.assertRegex(printed(program, shell), rf"(?m)^.*{flag}.*\bautodiff\b.*\bmemplan\b", shell)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.ft", "b.txt", "c.safetensors"):
                open(os.path.join(folder, name), "w").close()
            os.mkdir(os.path.join(folder, "runs"))
            self.assertEqual(self.completed("ftc", "", folder=folder), ["a.ft", "runs"])
            self.assertEqual(self.completed("ftrun", "--init", "", folder=folder), ["c.safetensors", "runs"])
            self.assertEqual(self.completed("ftrun", "--data", "", folder=folder), ["runs"])

    def test_every_flag_is_taken(self):
        """With no model behind it each is a wrong command line for that reason, not for the flag."""
        for program in PROGRAMS:
            for command, flag, value in rows(program):
                words = [program, *([command] if command else []), flag]
                if value and flag not in ("--memory", "--http"):
                    words.append({"N": "1", "KEY=VALUE": "train.lr=1", "HYPER=VALUE": "a=1", "NAME=VALUE": "a=1", "F.svg": "a.svg", r"nan\|overflow": "nan", "LEAST:MOST": "1:2", "NAME=RANGE": "lr=range(0, 1)", "PATTERN=FORM": "fc*=w8", "RULE": "mse", "S": "tpe" if command == "tune" else "valid", "P": "none", "STEPS": "5", "FACTOR": "3", r"keep\|error": "keep", r"global\|layer": "layer"}.get(value, "1"))
                if flag == "--lsp":  # it waits for an editor: test/e2e/lsp.py
                    continue
                told = support.run(*words, check=False)
                if flag in ("--list-ops", "--list-passes") or command == "devices":
                    self.assertEqual(told.returncode, 0, words)
                    continue
                self.assertEqual(told.returncode, 2, (words, told.stderr))
                self.assertRegex(told.stderr, r"no program given|is for --simulate|needs a value: KEY=VALUE|no input|needs (a model|a text file|a log)|goes with --find-lr|goes with --http|is for a GPU", words)
        for program in PROGRAMS:
            self.assertEqual(support.run(program, "--version").stdout, f"{program} {newest_version()}\n")
            told = support.run(program, "--help=latex", check=False)
            self.assertEqual(told.returncode, 2)
            self.assertIn("man, markdown, bash, zsh or fish", told.stderr)

    def test_help(self):
        for program in PROGRAMS:
            text = support.run(program, "--help").stdout
            self.assertLessEqual(max(map(len, text.splitlines())), 110, program)
            for command, flag, _ in rows(program):
                shown = support.run(program, *([command] if command else []), "--help").stdout
                self.assertIn(f"\n  {flag}", shown)


if __name__ == "__main__":
    support.main()
