"""Every command of the pages is run, in the order of the page, and prints what the page shows. What needs a network, a display or root is
skipped by name in SKIPPED; a command that cannot run and is not named there fails. With FT_TURN, the number of commits, the two pages that take
longest are followed every sixth time, and whenever they differ from what they were three commits before."""
import glob
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import pages
import support

# the first words of a command: why it is not run
SKIPPED = {
    "scripts/install-deps": "installs Debian packages",
    "scripts/build": "builds what this tests",
    "export PATH=": "the test has done so",
    "tensorboard ": "a server that needs its package (test/e2e/tensorboard.py reads the files)",
}
DEPENDS_ON_SPEED = ("data: steps waited ", "data: at the start ")  # lines that only slow machines see
UNTIL_CTRL_C = ("ftrun watch --http",)


class Page(support.Case):
    """A folder to work in, as a reader's: the tools on the PATH, and the examples of the checkout."""

    def setUp(self):
        super().setUp()
        for name in ("examples", "scripts"):
            os.symlink(os.path.join(support.ROOT, name), self.path(name))
        stubs = os.path.join(support.ROOT, "test", "fake", "python")
        self.environment = dict(os.environ, PATH=os.path.join(support.BUILD, "bin") + ":" + os.environ["PATH"], PYTHONPATH=stubs,
                                PYTHONDONTWRITEBYTECODE="1", NO_COLOR="1")
        self.ran = 0

    def bash(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True, errors="replace", timeout=300)

    def until_ctrl_c(self, command, shown):
        """Runs what serves until Ctrl-C: its first line, and an orderly end."""
        with subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:  # a script's background jobs ignore it
            said = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.wait(60)
        self.assertIsNone(pages.matches(shown[:1], said.splitlines()), command)

    def run_command(self, command, shown):
        if command.startswith(tuple(SKIPPED)):
            return
        self.ran += 1
        if command.startswith(UNTIL_CTRL_C):
            return self.until_ctrl_c(command, shown)
        done = self.bash(command)
        said = [line for line in done.stdout.splitlines() if not line.startswith(DEPENDS_ON_SPEED)]
        fails = any("error:" in line for line in shown)
        self.assertEqual(done.returncode != 0, fails, f"{command}\nexit {done.returncode}\n{done.stdout[-3000:]}")
        if shown:
            missing = pages.matches(shown, said)
            self.assertIsNone(missing, f"{command}\ndoes not print what the page shows:\n{missing}\nbut\n{done.stdout[-3000:]}")
            self.assertIsNone(pages.values_differ(shown, said), command)

    def follow(self, name):
        with open(os.path.join(support.ROOT, "docs", name)) as file:
            text = file.read()
        for language, body in pages.fenced(text):
            if language == "sh":
                for command, shown in pages.commands(body):
                    with self.subTest(command=command):
                        self.run_command(command, shown)
            elif pages.file_of(body):
                path = self.path(pages.file_of(body))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(body)
        self.assertGreater(self.ran, 0, "no command was found in " + name)


def has_its_turn(number, name):
    changed = ["git", "diff", "--quiet", "HEAD~3", "--", os.path.join("docs", name)]  # a tree without a past: it may have changed
    return support.has_its_turn(number, 6) or subprocess.run(changed, cwd=support.ROOT, stderr=subprocess.DEVNULL).returncode != 0


class Docs(Page):
    def test_tutorial(self):
        self.follow("tutorial.md")

    def test_coming_from_pytorch(self):
        self.follow("coming-from-pytorch.md")

    def test_debugging(self):
        self.follow("debugging.md")

    def test_recipes(self):
        if not has_its_turn(2, "recipes.md"):
            self.skipTest("the turn of another commit")
        self.follow("recipes.md")

    def test_faster_training(self):
        if not has_its_turn(4, "faster-training.md"):
            self.skipTest("the turn of another commit")
        self.follow("faster-training.md")

    def test_links_lead_somewhere(self):
        def anchors(path):
            with open(path) as file:
                headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", file.read(), flags=re.M | re.S), re.M)
            return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

        for page in ["README.md", *glob.glob("docs/*.md", root_dir=support.ROOT)]:
            with open(os.path.join(support.ROOT, page)) as file:
                links = re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]+))?\)", re.sub(r"^```.*?^```$|`[^`\n]*`", "", file.read(), flags=re.M | re.S))
            for name, anchor in links:
                path = os.path.normpath(os.path.join(support.ROOT, os.path.dirname(page), name)) if name else os.path.join(support.ROOT, page)
                with self.subTest(page=page, link=name + "#" + anchor):
                    self.assertTrue(os.path.exists(path))
                    self.assertTrue(not anchor or anchor in anchors(path))


if __name__ == "__main__":
    support.main()
