"""check.py FTC FILE [--update]: the mistakes of FILE, a program behind each `//--- name`, and the messages that
follow in its `// WANT:` lines: line:column: kind: text. All messages about the user's file are compared, in
order and whole; the place, the cause and the way out are all in them. --update writes what ftc says now: read it
before it is kept."""
import re
import subprocess
import sys
import tempfile
import os

import sections

MESSAGE = re.compile(r"(?:(\S+?):(\d+:\d+): )?(error|warning|note): (.*)")


def messages(ftc, source):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.ft")
        with open(path, "w") as file:
            file.write(source)
        run = subprocess.run([ftc, path, "--emit=ir"], capture_output=True, text=True, timeout=60)
    if run.returncode not in (0, 1):
        return [f"exit code {run.returncode}: {run.stderr}"]
    found = []
    for line in run.stderr.splitlines():
        match = MESSAGE.fullmatch(line)
        if match and match.group(1) in (None, path) and not match.group(4).startswith("a line that ends with"):  # not those about std/nn.ft
            found.append(f"{match.group(2)}: {match.group(3)}: {match.group(4)}" if match.group(2) else f"{match.group(3)}: {match.group(4)}")
    if run.returncode == 0:
        found.append("compiles")
    return found


sys.exit(sections.check(sys.argv[2], "--update" in sys.argv, lambda source: messages(sys.argv[1], source)))
