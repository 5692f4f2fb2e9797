"""What the pages use of the package safetensors, which Debian does not have."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", ".."))
import support


def load_file(path):
    return {name: torch.from_numpy(value) for name, value in support.read_safetensors(path).items()}


def save_file(tensors, path):
    support.write_safetensors(path, {name: value.detach().numpy() for name, value in tensors.items()})
