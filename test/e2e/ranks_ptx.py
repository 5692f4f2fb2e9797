"""Several ranks that run a PTX artifact: on the simulator, whose collectives go to the ranks as a CPU's do."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
import ranks as of_cpus

RECIPES, WHOLE = of_cpus.RECIPES, of_cpus.WHOLE
STEPS = 6


class Ptx(of_cpus.Ranks):
    """One training as a PTX artifact on several ranks, against one CPU."""

    def setUp(self):
        super().setUp()
        of_cpus.write_tokens(self)

    def artifact(self, recipe, ranks, target="ptx"):
        source = RECIPES[recipe][0] + f"  batch = {WHOLE // ranks}; seed = 5; epochs = 1; eval every {STEPS} steps; log {{ every = 1 steps }} }}\n"
        return self.compile(source, "--set", "distributed.data=any", name=f"{recipe}-{ranks}.{target}")

    def train(self, path, *flags, ranks=None, env=None, name="run"):
        """What the log and --save hold."""
        log, weights = self.path(name + ".jsonl"), self.path(name + ".safetensors")
        self.start(path, "--steps", STEPS, "--log-jsonl", log, "--save", weights, *flags, ranks=ranks, env=env)
        return support.read_jsonl(log), support.read_safetensors(weights)

    assert_same = of_cpus.Joined.assert_same


@unittest.skipUnless(of_cpus.HAS_MPI, "no MPI: libft-mpi.so or mpirun is missing")
class Simulated(Ptx):
    def test_trains_as_one(self):
        """Losses, metrics, evaluations and final weights of 2 and 4 simulated GPUs are those of one CPU with the whole batch."""
        for recipe, (_, tolerance) in RECIPES.items():
            one = self.train(self.artifact(recipe, 1, "so"))
            for ranks in (2, 4):
                with self.subTest(recipe=recipe, ranks=ranks):
                    many = self.train(self.artifact(recipe, ranks), "--device", "sim", ranks=ranks)
                    self.assert_same(one, many, tolerance)

    def test_alone(self):
        """A model for any number of ranks is one for a single simulated GPU, too."""
        self.assert_same(self.train(self.artifact("mlp", 1, "so")), self.train(self.artifact("mlp", 1), "--device", "sim"), RECIPES["mlp"][1])


if __name__ == "__main__":
    support.main()
