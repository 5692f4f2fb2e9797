"""Every example trains to a stated result, through the commands that the README gives. With FT_TURN, the number of commits,
resnet_tiny.ft, which takes most of the time, in every sixth (in two others test/e2e/docs.py follows its longest pages)."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support


class Examples(support.Case):
    def train(self, example, *flags):
        """Trains; returns the evaluations, in order."""
        artifact = self.compile(os.path.join(support.EXAMPLES, example))
        support.run("ftrun", artifact, *flags, "--log-jsonl", self.path("log.jsonl"), timeout=900)
        lines = support.read_jsonl(self.path("log.jsonl"))
        evaluations = [line for line in lines if line.get("eval")]
        self.assertTrue(evaluations, "no evaluation was logged")
        return evaluations

    def make(self, script, *arguments):
        folder = self.path("data")
        support.subprocess.run([sys.executable, os.path.join(support.EXAMPLES, "data", script), folder, *arguments], check=True)
        return folder

    def test_fashion_mlp_reaches_87_percent(self):
        self.assertGreater(self.train("fashion_mlp.ft")[-1]["accuracy"], 0.87)

    @unittest.skipUnless(os.environ.get("FT_SOAK"), "scripts/quickstart, which CI runs, trains it to 90 % and asks for that")
    def test_fashion_cnn_reaches_90_percent(self):
        self.assertGreater(self.train("fashion_cnn.ft", "--epochs", "3")[-1]["accuracy"], 0.90)

    @unittest.skipUnless(support.has_its_turn(0, 6), "the turn of another commit")
    def test_resnet_tiny_reaches_90_percent(self):
        evaluations = self.train("resnet_tiny.ft", "--data", self.make("make_shapes.py", "6400"))
        self.assertGreater(evaluations[-1]["accuracy"], 0.90)

    def test_autoencoder_halves_the_error_of_the_mean_image(self):
        # Fashion-MNIST's pixels, in 0..1, have a variance of about 0.087 around the mean image's.
        self.assertLess(self.train("autoencoder.ft", "--epochs", "3")[-1]["loss"], 0.02)

    def test_reviews_reaches_98_percent(self):
        # words alone decide nothing (make_reviews.py): one who looks at the first food's word without "not" is right in half of them
        self.assertGreater(self.train("reviews.ft", "--data", self.make("make_reviews.py", "4000"))[-1]["accuracy"], 0.98)

    def test_regression_comes_near_the_noise(self):
        # The noise of 0.05 alone gives a mean absolute error of 0.04.
        self.assertLess(self.train("regression.ft", "--data", self.make("make_regression.py"))[-1]["error"], 0.06)


if __name__ == "__main__":
    support.main()
