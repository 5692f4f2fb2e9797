"""Reads the commands out of a page of docs/, and holds what they print against what the page shows.

In a fenced block of `sh`, a line that begins with `$ ` is a command (`\\` at its end continues it), and the lines up to the next one are its
output. A block of `ft`, `python` or any other language whose first line is a comment with a file's name is that file. In the
shown output `...` stands for any lines, or for any text within a line."""
import re

COMMENTS = re.compile(r"(?://|#) ([\w./-]+\.\w+)\b")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,.:]*(?:e[+-]?\d+)?(?!\w)")
UNIT = re.compile(r"# (?:B|kB|MB|GB|KiB|MiB|GiB)\b")
VALUE = re.compile(r"\b(loss|accuracy|error|mean_loss|[a-z_]*dice|perplexity|bits) (\d+\.\d+)")
SHARE, RELATIVE = 0.05, 0.1  # by how much a result may differ from what is shown: other processors add in another order


def fenced(text):
    """[(language, body)] of the fenced blocks, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)


def file_of(body):
    """The name that the block's first line gives it, or None."""
    named = COMMENTS.match(body)
    return named and named.group(1)


def commands(body):
    """[(command, [shown line, ...])] of a block of `sh`."""
    found, is_open = [], False
    for line in body.splitlines():
        if is_open:
            found[-1][0] += "\n" + line
        elif line.startswith("$ "):
            found.append([line[2:], []])
        elif found:
            found[-1][1].append(line)
        else:
            raise AssertionError(f"a block of commands begins with output: {line}")
        is_open = line.endswith("\\") and (is_open or line.startswith("$ "))
    return found


def masked(line):
    """A line without what differs from machine to machine: numbers, their units, blanks."""
    line = UNIT.sub("# B", NUMBER.sub("#", line))
    return " ".join(line.replace("threads", "thread").split())


def line_matches(shown, said):
    parts = [re.escape(part) for part in masked(shown).split("...")]
    return re.fullmatch(".*".join(parts), masked(said)) is not None


def matches(shown, said):
    """Where the lines shown are met by those said: None if all are, else the first shown line that is not. As in a shell's
    pattern `...` takes as few lines as it can; what was passed over is tried again further on."""
    at, star = 0, None  # star: where to go on in shown behind the last `...`, and in said
    i, furthest = 0, 0
    while i < len(said):
        if at < len(shown) and shown[at] == "...":
            at, star = at + 1, (at + 1, i)
        elif at < len(shown) and line_matches(shown[at], said[i]):
            at, i, furthest = at + 1, i + 1, max(furthest, at + 1)
        elif star:
            star = (star[0], star[1] + 1)
            at, i = star
        else:
            return shown[at] if at < len(shown) else f"nothing behind the last line shown, but there is: {said[i]}"
    while at < len(shown) and shown[at] == "...":
        at += 1
    return None if at == len(shown) else shown[max(at, min(furthest, len(shown) - 1))]


def results(lines):
    """The values of the last line that has any: {name: value}."""
    found = [dict(VALUE.findall(line)) for line in lines]
    return next(({name: float(value) for name, value in line.items()} for line in reversed(found) if line), {})


def values_differ(shown, said):
    """What the last line with results shows and what was said, if they are further apart than trainings on other processors drift; else None."""
    shown, said = results(shown), results(said)
    far = [name for name, value in shown.items() if name not in said or abs(value - said[name]) > max(SHARE, RELATIVE * abs(value))]
    return (shown, said) if far else None


def reference_commands(text):
    """The commands of a page without `sh` blocks: indented lines, each with a remark behind two blanks or a `#`, and spans of code
    within its sentences that begin with one of our tools and go on."""
    words = r"(?:ft\w+|scripts/[a-z-]+|bench/[a-z/.]+|build/bin/\w+|source|mpirun|torchrun|apt|cat|code=)"
    indented = re.findall(rf"^    ({words}.*)$", text, re.M)
    inline = re.findall(rf"`((?:ftc|ftrun|ftopt|scripts/[a-z-]+|source) [^`]+)`", text)
    return [re.split(r"\s{2,}|\s#\s", line.replace("\\|", "|"))[0].strip() for line in indented + inline]
