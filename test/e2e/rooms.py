"""The architecture holds: a room includes headers only of rooms to its left, and ftrun links neither
LLVM nor compiler code."""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

# room -> rooms whose headers it may include
MAY = {
    "base": [], "plan": ["base"], "simulate": ["base", "plan"], "ir": ["base"], "frontend": ["base", "plan", "ir"], "passes": ["base", "plan", "ir", "frontend"], "lsp": ["base", "plan", "ir", "frontend"],
    "kernels": [], "codegen": ["base", "plan", "ir", "frontend", "passes", "kernels"], "runtime": ["base", "plan"],
}
# within runtime/: each includes itself and what stands before it; ft.c and ft.h, the library's face, all of them
RUNTIME = ["common", "communicate", "artifact", "text", "image", "data", "device", "execute", "checkpoint", "tune", "quantize", "command"]
# dtypes and shapes, the table of ops and their scalars, compiled apart as ft_type
EXCEPT = {(room, header) for room in ("plan", "runtime") for header in ("ir/type.h", "ir/op.h", "ir/scalar.h")}
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 600, 80
CODE = os.path.join(support.BUILD, "bin")


class Rooms(support.Case):
    def includes(self):
        for room in MAY:
            for path in glob.glob(os.path.join(support.ROOT, room, "**", "*.[chly]"), recursive=True):
                with open(path) as file:
                    for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read(), re.M):
                        yield room, path, header

    def test_includes_go_left(self):
        seen = 0
        for room, path, header in self.includes():
            first = header.split("/")[0]
            if "/" not in header or first not in MAY:
                continue
            seen += 1
            self.assertTrue(first == room or first in MAY[room] or (room, header) in EXCEPT, f"{path} includes {header}")
        self.assertGreater(seen, 50, "the check looked at nothing")

    def test_rooms_of_the_runtime(self):
        seen = set()
        for room, path, header in self.includes():
            parts = os.path.relpath(path, support.ROOT).split(os.sep)
            if room != "runtime" or not header.startswith("runtime/") or len(parts) < 3:
                continue
            inner = header.split("/")[1]
            self.assertIn(inner, RUNTIME, f"{path} includes {header}")
            self.assertLessEqual(RUNTIME.index(inner), RUNTIME.index(parts[1]), f"{path} includes {header}")
            seen.add(parts[1])
        self.assertEqual(seen | {"common"}, set(RUNTIME))
        for name in os.listdir(os.path.join(support.ROOT, "runtime")):
            self.assertIn(name, RUNTIME + ["ft.c", "ft.h"], "a file of the runtime without a room")

    def test_devices_are_apart(self):
        """cpu and cuda know no other device; the simulator runs library calls as the CPU does."""
        may = {"cpu": {"cpu"}, "cuda": {"cuda"}, "sim": {"sim", "cpu"}}
        for _, path, header in self.includes():
            own = re.search(r"runtime/device/(\w+)/", path)
            other = re.match(r"runtime/device/(\w+)/", header)
            if own and other:
                self.assertIn(other.group(1), may[own.group(1)], f"{path} includes {header}")

    def test_turns(self):
        """Each file that takes turns is there once, and each of its tests runs in one of so many commits that follow each other."""
        names = " ".join(support.TURNS.values()).split()
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertTrue(os.path.exists(os.path.join(support.ROOT, "test", name + ".py")), name)
        program = ("import sys; sys.path.insert(0, 'test'); sys.modules['__main__'].__file__ = sys.argv[1]; import support; "
                   "exec('class Made(support.Case):\\n' + ''.join(f' def test_{i}(self): pass\\n' for i in range(7))); "
                   "print(*(t.id()[-1] for t in support.each_test(support.Loader().loadTestsFromModule(sys.modules['__main__']))), support.os.environ['FT_TURN'])")
        for of, file in ((3, "test/num/attention.py"), (2, "test/num/image.py"), (1, "test/e2e/rooms.py")):
            seen = []
            for turn in range(7 * of, 8 * of):
                done = subprocess.run([sys.executable, "-c", program, file], cwd=support.ROOT, env=dict(os.environ, FT_TURN=str(turn), FT_BUILD="/none"), capture_output=True, text=True)
                *tests, within = done.stdout.split()
                self.assertEqual(within, "7")
                seen += tests
            self.assertEqual(sorted(seen), list("0123456"), file)

    def test_files_and_functions_are_short(self):
        """No file of the house over 600 lines, no function over 80; a function is what stands between braces in column 0."""
        functions, long = 0, []
        for room in [*MAY, "tools", "test", "bench", "scripts"]:
            for path in glob.glob(os.path.join(support.ROOT, room, "**", "*"), recursive=True):
                if not re.search(r"\.([chly]|inc|def|py|ft)$", path) and (room != "scripts" or not os.path.isfile(path)):
                    continue
                with open(path) as file:
                    lines = file.read().splitlines()
                if len(lines) > MOST_LINES:
                    long.append(f"{path} has {len(lines)} lines")
                head = None
                for i, line in enumerate(lines if path.endswith((".c", ".h", ".l", ".y", ".inc")) else []):
                    if re.match(r"[A-Za-z_].*\(", line):
                        head = i
                    elif line == "}" and head is not None:
                        functions += 1
                        if i - head + 1 > MOST_LINES_OF_A_FUNCTION:
                            long.append(f"{path}:{head + 1}: {lines[head]} has {i - head + 1} lines")
                        head = None
        self.assertGreater(functions, 4000, "the check looked at nothing")
        self.assertEqual(long, [])

    def test_a_static_name_is_one_function(self):
        """A debugger and a search answer with one: where two files want a name, it follows the file's prefix."""
        files = {}
        for room in [*MAY, "tools"]:
            for path in glob.glob(os.path.join(support.ROOT, room, "**", "*.[ch]"), recursive=True):
                with open(path) as file:
                    text = re.sub(r"__attribute__\(\(\w+(\([^()]*\))?\)\)", "", file.read())
                for name in re.findall(r"^static\b[^;={}()]*?(\w+)\s*\(", text, re.M):
                    files.setdefault(name, set()).add(os.path.relpath(path, support.ROOT))
        self.assertGreater(len(files), 2500, "the check looked at nothing")
        self.assertEqual({name: sorted(of) for name, of in files.items() if len(of) > 1}, {})

    def test_ftrun_has_no_compiler_in_it(self):
        linked = subprocess.run(["ldd", os.path.join(CODE, "ftrun")], capture_output=True, text=True, check=True).stdout
        self.assertIn("libc.so", linked)
        for library in ("LLVM", "python", "libstdc++", "libclang", "libmpi", "libopen", "libdnnl", "libgomp", "OpenCL"):
            self.assertNotIn(library, linked)
        symbols = subprocess.run(["nm", os.path.join(CODE, "ftrun")], capture_output=True, text=True, check=True).stdout
        for symbol in ("graph_node", "frontend_compile", "pass_fuse", "codegen_run", "LLVMRunPasses", "yyparse"):
            self.assertNotRegex(symbols, rf"\b{symbol}\b")
        self.assertRegex(symbols, r"\bplan_parse\b")

    def test_the_plugin_offers_one_symbol(self):
        plugin = os.path.join(support.BUILD, "lib", "libft-mpi.so")
        if not os.path.exists(plugin):
            self.skipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        symbols = subprocess.run(["nm", "-D", "--defined-only", plugin], capture_output=True, text=True, check=True).stdout
        self.assertEqual([line.split()[-1] for line in symbols.splitlines()], ["ft_engine"])

    def test_ftc_has_no_runtime_in_it(self):
        symbols = subprocess.run(["nm", os.path.join(CODE, "ftc")], capture_output=True, text=True, check=True).stdout
        self.assertRegex(symbols, r"\bpass_fuse\b")
        for symbol in ("exec_run", "loader_new"):
            self.assertNotRegex(symbols, rf"\b{symbol}\b")


if __name__ == "__main__":
    support.main()
