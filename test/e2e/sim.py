"""Whole trainings on the simulator against the same model compiled for the processor: from the same
seed and batches, the losses of a step may differ only by the order in which sums are taken (measured: 2e-7 relative). And the
error of a damaged kernel, as a user sees it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support


class Sim(support.Case):
    def losses(self, example, device, steps, *flags):
        artifact = self.compile(os.path.join(support.EXAMPLES, example + ".ft"), name=f"model.{device}")
        log = self.path(device + ".jsonl")
        support.run("ftrun", artifact, "--device", "sim" if device == "ptx" else "cpu", "--steps", steps, "--no-shuffle", "--data",
                    support.FASHION, "--set", "train.log.every=1", "--set", "train.eval.every=0", "--log-jsonl", log, *flags)
        return [line["loss"] for line in support.read_jsonl(log) if "loss" in line and not line.get("eval")]

    def follows(self, example, steps, worst):
        cpu, sim = self.losses(example, "so", steps), self.losses(example, "ptx", steps)
        self.assertEqual(len(cpu), steps)
        self.assertEqual(len(sim), steps)
        errors = [abs(a - b) / abs(a) for a, b in zip(cpu, sim)]
        print(f"{example}: {steps} steps, losses differ by {max(errors):.1e} at most", file=sys.stderr)
        self.assertLess(max(errors), worst)

    def test_mlp_trains_hundreds_of_steps(self):
        losses = self.losses("fashion_mlp", "ptx", 200)
        self.assertLess(sum(losses[-20:]) / 20, 0.75)

    def test_mlp_follows_the_processor(self):
        self.follows("fashion_mlp", 30, 1e-5)

    def test_autoencoder_follows_the_processor(self):
        self.follows("autoencoder", 10, 1e-5)

    def test_cnn_follows_the_processor(self):
        self.follows("fashion_cnn", 3, 1e-5)

    def test_a_finding_ends_the_run(self):
        """A store moved out of its buffer is found in the first step, with its line in both files."""
        artifact = self.compile(os.path.join(support.EXAMPLES, "fashion_mlp.ft"), name="model.ptx")
        with open(artifact) as file:
            lines = file.read().split("\n")
        at = next(i for i, line in enumerate(lines) if "st.global.v4.f32" in line)
        lines[at] = lines[at].replace("]", "+16777216]", 1)
        with open(artifact, "w") as file:
            file.write("\n".join(lines))
        self.fails(1, f"model.ptx:{at + 1}: out of bounds: a store of 16 bytes at", "ftrun", artifact, "--device", "sim", "--data",
                   support.FASHION, "--steps", "1")


if __name__ == "__main__":
    support.main()
