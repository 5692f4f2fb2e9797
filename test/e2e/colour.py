"""Messages have colours on a terminal and nowhere else: NO_COLOR, TERM=dumb, CLICOLOR_FORCE, files and pipes."""
import os
import pty
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

SOURCE = "model M(x: f32[B, 8], y: i32[B]) {\n  loss = mean(cross_entropi(Linear(4)(x), y))\n}\n"
ERROR, CARET, PLAIN = "\033[1;31m", "\033[1;32m", "\033[0m"


def on_terminal(command, **environment):
    """What a program writes to standard error, which is a terminal."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CLICOLOR_FORCE")}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env={**clean, "TERM": "xterm-256color", **environment})
    os.close(theirs)
    said = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        said += block
    os.close(ours)
    process.wait(timeout=60)
    return said.decode().replace("\r\n", "\n")


class Colour(support.Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.source = os.path.join(cls.folder.name, "a.ft")
        with open(cls.source, "w") as file:
            file.write(SOURCE)
        cls.ftc = [os.path.join(support.BUILD, "bin", "ftc"), cls.source, "-o", os.path.join(cls.folder.name, "a.so")]
        cls.ftrun = [os.path.join(support.BUILD, "bin", "ftrun"), os.path.join(cls.folder.name, "absent.so")]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_terminal_shows_colours(self):
        said = on_terminal(self.ftc)
        self.assertIn(ERROR + "error:" + PLAIN, said)
        self.assertIn(CARET + "^" + PLAIN, said)
        self.assertEqual(re.sub(r"\033\[[0-9;]*m", "", said), support.run("ftc", *self.ftc[1:], check=False).stderr)
        self.assertIn(ERROR + "error:" + PLAIN, on_terminal(self.ftrun))
        self.assertIn(ERROR + "error:" + PLAIN, on_terminal([*self.ftrun, "--stepz"]), "usage")
        through = on_terminal([self.ftrun[0], self.source])
        self.assertIn(CARET + "^" + PLAIN, through, "what ftc says to ftrun model.ft")

    def test_who_wants_none_gets_none(self):
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}):
            for command in (self.ftc, self.ftrun):
                said = on_terminal(command, **environment)
                self.assertIn("error: ", said)
                self.assertNotIn("\033", said, environment)

    def test_no_terminal_no_colours(self):
        for tool, *arguments in (["ftc", *self.ftc[1:]], ["ftrun", self.ftrun[1]]):
            self.assertNotIn("\033", support.run(tool, *arguments, check=False, env={"TERM": "xterm-256color"}).stderr)
            forced = support.run(tool, *arguments, check=False, env={"CLICOLOR_FORCE": "1", "NO_COLOR": ""}).stderr
            self.assertIn(ERROR + "error:" + PLAIN, forced)
            self.assertNotIn("\033", support.run(tool, *arguments, check=False, env={"CLICOLOR_FORCE": "0"}).stderr)


if __name__ == "__main__":
    support.main()
