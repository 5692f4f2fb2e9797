"""packaging/editors: the words of the grammars are those of the lexer and its types, every word of every example has a colour, and the extension of
Visual Studio Code speaks with ftc --lsp (where there is node), as Vim reads its files (where there is Vim)."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

EDITORS = os.path.join(support.ROOT, "packaging", "editors")
# words that mean something on their own, and are in no rule of the lexer
CONSTANTS, TYPES = {"training", "pi", "inf"}, {"int", "float", "str", "list", "init"}


def read(*parts):
    with open(os.path.join(support.ROOT, *parts)) as file:
        return file.read()


def lexer_words():
    """Words of frontend/ft.l by whether they are declarations, reserved, or the beginning of a statement or part of an entry."""
    rules = dict(re.findall(r'^"([a-z]+)" (DECLARATION|TOKEN)\(', read("frontend", "ft.l"), re.M))
    reserved = set(re.search(r"Reserved: `([a-z ]+)`", read("docs", "language.md"))[1].split())
    declarations = {word for word, kind in rules.items() if kind == "DECLARATION"}
    return declarations, reserved, set(rules) - declarations - reserved


def dtypes():
    return set(re.search(r"Element types: `([a-z0-9 ]+)`", read("docs", "language.md"))[1].split())


class Grammar:
    """A TextMate grammar, as far as ours goes: matches, and regions from a begin to an end."""

    def __init__(self, path):
        with open(path) as file:
            self.all = json.load(file)
        self.rules = self.flat([{"include": "#all"}])

    def flat(self, patterns):
        rules = []
        for one in patterns:
            if "include" in one:
                rules += self.flat(self.all["repository"][one["include"][1:]]["patterns"])
            elif "match" in one:
                rules.append((re.compile(one["match"]), None, one, []))
            else:
                rules.append((re.compile(one["begin"]), re.compile(one["end"]), one, self.flat(one.get("patterns", []))))
        return rules

    def scopes(self, text):
        """(text, scope or None) of each part."""
        region = None
        for line in text.splitlines():
            at = 0
            while at <= len(line):
                rules = region[3] if region else self.rules
                found = [(rule[0].search(line, at), rule) for rule in rules]
                end = region and region[1].search(line, at)
                if end:
                    found.insert(0, (end, None))
                found = min(((match, rule) for match, rule in found if match), key=lambda one: one[0].start(), default=None)
                name = region and region[2]["name"]
                if not found:
                    yield line[at:], name
                    break
                match, rule = found
                yield line[at:match.start()], name
                if rule is None:
                    yield match[0], name
                    region = None
                elif rule[1]:
                    yield match[0], rule[2]["name"]
                    region = rule
                elif "captures" in rule[2]:
                    spans = [(match.span(int(group)), capture["name"]) for group, capture in rule[2]["captures"].items() if match[int(group)] is not None]
                    last = match.start()
                    for (begin, stop), scope in spans:
                        yield line[last:begin], None
                        yield line[begin:stop], scope
                        last = stop
                    yield line[last:match.end()], None
                else:
                    yield match[0], rule[2]["name"]
                at = match.end() + (match.end() == match.start() == at and rule is not None)
                if at == len(line) and not region:
                    break


class Editors(support.Case):
    def setUp(self):
        super().setUp()
        self.grammar = Grammar(os.path.join(EDITORS, "vscode", "syntaxes", "ft.tmLanguage.json"))

    def test_words(self):
        declarations, reserved, others = lexer_words()
        self.assertTrue(len(declarations) > 5 and len(reserved) > 5 and len(others) > 5)
        words = {}
        for pattern, _, rule, _ in self.grammar.rules:
            for scope in [rule["name"]] if "name" in rule else [capture["name"] for capture in rule["captures"].values()]:
                words.setdefault(scope, set()).update(re.findall(r"[a-z][a-z0-9]+", re.sub(r"\\s|\[[^]]*\]", " ", pattern.pattern)))
        self.assertEqual(words["keyword.declaration.ft"], declarations)
        self.assertEqual(words["keyword.other.ft"], others)
        self.assertEqual(words["keyword.control.ft"] | words["keyword.operator.word.ft"] | words["constant.language.ft"], reserved | CONSTANTS)
        self.assertEqual(words["storage.type.ft"], dtypes() | TYPES)
        vim = {}
        for group, line in re.findall(r"^syn (?:keyword|match) (ft\w+) (.*)$", read("packaging", "editors", "vim", "syntax", "ft.vim"), re.M):
            vim.setdefault(group, set()).update(re.findall(r"[a-z][a-z0-9]+", re.sub(r"\\z[se]|\\[a-z%<>]|nextgroup=\w+ skipwhite|\[[^]]*\]", " ", line)))
        self.assertEqual(vim["ftDeclaration"], declarations)
        self.assertEqual(vim["ftStatement"], others)
        self.assertEqual(vim["ftControl"] | vim["ftOperator"] | vim["ftConstant"], reserved | CONSTANTS)
        self.assertEqual(vim["ftType"], dtypes() | TYPES)

    def test_every_word_has_a_scope(self):
        declarations, reserved, _ = lexer_words()
        texts = glob.glob(os.path.join(support.EXAMPLES, "**", "*.ft"), recursive=True) + glob.glob(os.path.join(support.ROOT, "frontend", "std", "*.ft"))
        self.assertGreater(len(texts), 8)
        seen = set()
        for path in texts:
            parts = list(self.grammar.scopes(read(path)))
            self.assertEqual("".join(part for part, _ in parts), read(path).replace("\n", ""), path)
            for part, scope in parts:
                self.assertTrue(scope or not part.strip(), f"{path}: '{part}' has no scope")
                seen.add(scope)
                if scope == "keyword.declaration.ft":
                    self.assertIn(part, declarations)
                elif part in reserved:
                    self.assertTrue(scope.startswith(("keyword", "constant", "comment", "string")), (part, scope))
                self.assertFalse(scope and scope.startswith("invalid"), part)
        self.assertGreater(len(seen), 18)
        told = dict(self.grammar.scopes('x = relu(Linear(10, name="a\\n")(model)) // c\n  train = 3\n  model = Mlp; y = 2h + 8 GiB + 3 steps'))
        self.assertEqual([told[word] for word in ("relu", "Linear", "name", "// c", "train", "2h", "8 GiB", "3 steps", "\\n")],
                         ["entity.name.function.ft", "entity.name.class.ft", "variable.parameter.ft", "comment.line.double-slash.ft", "variable.parameter.ft",
                          "constant.numeric.time.ft", "constant.numeric.size.ft", "constant.numeric.duration.ft", "constant.character.escape.ft"])

    def test_extension(self):
        extension = os.path.join(EDITORS, "vscode")
        manifest = json.loads(read(extension, "package.json"))
        for part in (manifest["main"], manifest["contributes"]["languages"][0]["configuration"], manifest["contributes"]["grammars"][0]["path"]):
            self.assertTrue(os.path.isfile(os.path.join(extension, part)), part)
        self.assertEqual(manifest["version"], re.search(r'FT_VERSION "(.*)"', read("base", "version.h"))[1])
        json.loads(read(extension, "language-configuration.json"))
        if not shutil.which("node"):
            raise unittest.SkipTest("no node here: the extension itself is not run")
        with open(self.path("m.ft"), "w") as file:
            file.write("hyper h: int = 4\nmodel M(x: f32[B, 4]) {\n  y = Linear(h)(x)\n  loss = mean(y)\n}\ntrain { batch = 2 }\n")
        done = subprocess.run(["node", os.path.join(support.ROOT, "test/tools/fake_vscode.js"), os.path.join(extension, "extension.js"), os.path.join(support.BUILD, "bin", "ftc"),
                               self.path("m.ft")], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        told = json.loads(done.stdout)
        self.assertEqual(told["first"], [])
        self.assertIn("20 parameters", told["hover"])
        self.assertIn("mean", told["labels"])
        self.assertEqual((told["symbols"], told["references"], told["highlights"], told["rename"]), (["h", "M", "train"], 2, 2, 2))
        self.assertIn("a name is letters", told["refused"])
        self.assertEqual(told["second"], ["unknown name 'maen'; did you mean 'mean'?", 0, 3, 9, 13])

    def test_vim(self):
        if not shutil.which("vim"):
            raise unittest.SkipTest("no Vim here")
        script = ["set rtp^=" + os.path.join(EDITORS, "vim"), "filetype plugin on", "syntax on", f"edit {support.EXAMPLES}/gpt2.ft",
                  "redir! > " + self.path("said"), "echo &filetype &commentstring", r"echo synIDattr(synID(search('^block'), 1, 1), 'name')",
                  r"echo synIDattr(synID(search('return'), match(getline('.'), 'return') + 1, 1), 'name')", r"echo synIDattr(synID(search('^preset'), 10, 1), 'name')", "redir END", "qall!"]
        with open(self.path("script.vim"), "w") as file:
            file.write("\n".join(script) + "\n")
        subprocess.run(["vim", "-N", "-u", "NONE", "-es", "-S", self.path("script.vim")], timeout=60, stdin=subprocess.DEVNULL)
        with open(self.path("said")) as file:
            self.assertEqual(file.read().split("\n")[1:], ["ft // %s", "ftDeclaration", "ftControl", "ftString"])


if __name__ == "__main__":
    support.main()
