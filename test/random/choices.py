"""What --disable takes: for each choice a small program whose code differs if it is left out, and whose values are the
interpreter's all the same, with it and without (choices/*.ft; the first line says what is left out, and on which machine). Some passes do what
later ones do too: without them alone no code is known to differ. The last line is `N passed, N failed`."""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import oracles
from driver import Driver

# shapes: simplify removes moves that move nothing, too. dce2: fuse emits nothing that no root needs. pieces: on ranks
# only, with distributed.tensor, and these programs run alone (unit passes_pieces). integers, integer_pools, prepare, rounded, vnni: in evaluation only (num/integers.py, num/rounded.py). amx, dpbf16,
# widened: as the processor has them (unit codegen_gemm).
WITHOUT_EFFECT = {"shapes", "dce2", "pieces", "integers", "integer_pools", "prepare", "rounded", "vnni", "amx", "dpbf16", "widened"}


def wrong_with(driver, path):
    """(the choice that it leaves out, None or what is wrong)"""
    with open(path) as file:
        choice, machine = re.fullmatch(r"// without (\w+), on (\S+)\n", file.readline()).groups()
    verdict, text = driver.ask_files(path, path[: -len("ft")] + "values", machine, choice, None)
    if verdict != "ok":
        return choice, f"{verdict}: {text}"
    verdict, whole = driver.ask_files(path, path[: -len("ft")] + "values", machine, None, None)
    if verdict != "ok":
        return choice, f"with it: {verdict}: {whole}"
    return choice, None if f"{choice}:other" in text.split() else "the code is the same without it"


def main():
    driver, names, passed, failures = Driver(), set(oracles.choices()), 0, []
    for path in sorted(glob.glob(os.path.join(HERE, "choices", "*.ft"))):
        choice, wrong = wrong_with(driver, path)
        names.discard(choice)
        passed += not wrong
        if wrong:
            failures.append(f"{os.path.basename(path)}: {wrong}")
    driver.stop()
    failures += [f"--disable={name}: no program of choices/ leaves it out" for name in sorted(names - WITHOUT_EFFECT)]
    print("\n".join(failures))
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
