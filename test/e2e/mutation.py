"""Every defect that scripts/mutate plants still has its place in the code, and the test that must notice it is one of
scripts/test --quick, so that the list stays a list of what is tested. Whether the tests notice them takes hours: scripts/mutate
itself."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.exit(subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "mutate"), "--check"]).returncode)
