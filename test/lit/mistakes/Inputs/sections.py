"""sections.py: a file of mistakes, `//--- name` in front of each, with what is said of it in `// WANT:` lines (check.py, commands.py)."""
import re


def check(path, update, said):
    """said(text of a mistake without its WANT lines): the lines that are said of it. The exit code: 1 where one is not as wanted."""
    with open(path) as file:
        head, *sections = re.split(r"^//--- ", file.read(), flags=re.M)
    wrong, out = 0, head
    for section in sections:
        name, _, body = section.partition("\n")
        text = "".join(line for line in body.splitlines(True) if not line.startswith("// WANT: "))
        want = [line[len("// WANT: "):] for line in body.splitlines() if line.startswith("// WANT: ")]
        got = said(text)
        out += f"//--- {name}\n{text}" + "".join(f"// WANT: {line}\n" for line in got)
        if got != want or not want:
            wrong += 1
            print(f"{path}: {name}:", *(f"  wanted {line}" for line in want), *(f"  got    {line}" for line in got), sep="\n")
    if update:
        with open(path, "w") as file:
            file.write(out)
        return 0
    print(f"{len(sections)} mistakes, {wrong} with other messages")
    return 1 if wrong or len(sections) < 5 else 0
