"""ft trains and runs neural networks that ftc has compiled.

    import ft, numpy
    artifact = ft.compile("model.ft", sets={"train.batch": 64})
    with ft.Model(artifact) as model:
        model.init(seed=42)
        for images, labels in batches:
            loss = model.train_step(images, labels)
        model.save_weights("w.safetensors")
        scores = model.predict(image=images)["logits"]

Arrays go in as NumPy's, as anything with the buffer protocol, or by DLPack (CPU tensors of PyTorch, JAX and others, which are not
needed); they come out as NumPy's. One thread uses a model at a time. docs/python.md tells more.
"""
from ._compile import CompileError, CompileWarning, compile
from ._library import FtError, FtFault
from ._model import Model, Spec
from ._progress import Progress
from .version import VERSION

__all__ = ["CompileError", "CompileWarning", "FtError", "FtFault", "Model", "Progress", "Spec", "compile"]
__version__ = VERSION
