"""What `cmake --install` lays down works from there: programs, man pages, completion, and programs that find libft by pkg-config and by CMake.
`ninja uninstall` takes all of it away. libft.so offers what ft.h declares, and nothing else. (scripts/test-packages makes the .deb.)"""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """model M(x: f32[B, 4], y: f32[B, 1]) { loss = mean((Linear(1)(x) - y) ** 2) }
train { model = M; batch = 8; optimizer = sgd(lr=0.1) }
"""
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(ft VERSION REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE ft::ft)
"""


def version():
    """Its first two numbers: what a program that is written today asks for."""
    with open(os.path.join(support.ROOT, "base/version.h")) as file:
        return re.search(r'FT_VERSION "(\d+\.\d+)', file.read())[1]


def program():
    """The first of docs/embedding.md."""
    with open(os.path.join(support.ROOT, "docs/embedding.md")) as file:
        return file.read().split("```c\n")[1].split("```")[0].replace("runtime/ft.h", "ft.h")


@unittest.skipIf(support.IS_SANITIZED, "libraries with sanitizers are for programs with sanitizers")
class Install(support.Case):
    def shell(self, *command, **options):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_symbols(self):
        with open(os.path.join(support.ROOT, "runtime/ft.h")) as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        declared = set(re.findall(r"\b(ft_\w+)\(", text))
        offered = self.shell("nm", "-D", "--defined-only", os.path.join(support.BUILD, "lib/libft.so"))
        self.assertEqual(set(re.findall(r" T (\w+)@@FT_0$", offered, re.M)), declared)
        self.assertEqual(re.findall(r"^\S* [^TA] .*", offered, re.M), [])

    def test_all(self):
        prefix = self.path("usr")
        self.shell("cmake", "--install", support.BUILD, "--prefix", prefix)
        self.addCleanup(os.remove, os.path.join(support.BUILD, "install_manifest.txt"))
        laid = {os.path.relpath(os.path.join(folder, name), prefix) for folder, _, names in os.walk(prefix) for name in names}
        for name in ("bin/ftc", "bin/ftrun", "bin/ftopt", "include/ft.h", "share/man/man1/ftrun.1", "share/bash-completion/completions/ftc",
                     "share/zsh/vendor-completions/_ftrun", "share/fish/vendor_completions.d/ftopt.fish", "share/doc/ft/examples/fashion_mlp.ft", "share/doc/ft/language.md",
                     "share/ft/std/blocks.ft", "share/ft/editors/vscode/extension.js", "share/ft/editors/vim/syntax/ft.vim"):
            self.assertIn(name, laid)
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL)
        with open(self.path("program.c"), "w") as file:
            file.write(program())
        self.shell(os.path.join(prefix, "bin/ftc"), self.path("m.ft"), "-o", self.path("m.so"))
        self.shell(os.path.join(prefix, "bin/ftrun"), "info", self.path("m.so"))
        (config,) = (os.path.join(prefix, name) for name in laid if name.endswith("/ft.pc"))
        flags = self.shell("pkg-config", "--cflags", "--libs", "ft", env={**os.environ, "PKG_CONFIG_PATH": os.path.dirname(config)}).split()
        self.shell("gcc", self.path("program.c"), "-o", self.path("by-pkg-config"), *flags)
        with open(self.path("CMakeLists.txt"), "w") as file:
            file.write(PROJECT.replace("VERSION REQUIRED", version() + " REQUIRED"))
        self.shell("cmake", "-S", self.folder, "-B", self.path("build"), f"-DCMAKE_PREFIX_PATH={prefix}")
        self.shell("cmake", "--build", self.path("build"))
        library = os.path.dirname(os.path.dirname(config))
        for binary in ("by-pkg-config", "build/program"):
            said = self.shell(self.path(binary), self.path("m.so"), self.path("w.safetensors"), env={**os.environ, "LD_LIBRARY_PATH": library})
            self.assertIn("after 200 steps", said)
            self.assertTrue(os.path.exists(self.path("w.safetensors")))
            os.remove(self.path("w.safetensors"))
        self.shell("cmake", f"-DMANIFEST={support.BUILD}/install_manifest.txt", "-P", os.path.join(support.ROOT, "packaging/uninstall.cmake"))
        self.assertEqual([name for _, _, names in os.walk(prefix) for name in names], [])


if __name__ == "__main__":
    support.main()
