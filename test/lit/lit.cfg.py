"""lit configuration: scripts/test runs `lit test/lit` with FT_BUILD naming the build folder."""
import os
import shutil

import lit.formats

config.name = "ft"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".ft", ".ftir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
root = os.path.abspath(os.path.join(config.test_source_root, "..", ".."))
build = os.path.abspath(os.environ.get("FT_BUILD", os.path.join(root, "build")))
config.test_exec_root = os.path.join(build, "lit")

for tool in ("ftc", "ftopt", "ftrun"):
    config.substitutions.append(("%" + tool + r"\b", os.path.join(build, "bin", tool)))
config.substitutions.append((r"%bin\b", os.path.join(build, "bin")))
config.substitutions.append((r"%root\b", root))
config.substitutions.append((r"%examples\b", os.path.join(root, "examples")))
config.environment["PATH"] = "/usr/lib/llvm-19/bin:" + os.environ.get("PATH", "/usr/bin:/bin")
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "HOME", "FT_TURN"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if shutil.which("ptxas"):
    config.available_features.add("ptxas")
