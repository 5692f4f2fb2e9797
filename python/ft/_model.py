"""Model: an artifact that is open, over ft.h."""
from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _library as lib
from ._library import FtError, check, library
from ._progress import Progress

_NUMPY = {"bool": "?", "u8": "u1", "i32": "i4", "u32": "u4", "i64": "i8", "f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8"}
Callback = Callable[["Model", int, float], Optional[bool]]
Batch = Union[Mapping[str, Any], Sequence[Any]]


@dataclass(frozen=True)
class Spec:
    """A tensor of a model: shape with the batch first, dtype as ft writes it. bf16 is held as its bits in uint16, or as ml_dtypes' where that is installed."""

    name: str
    dtype: str
    shape: Tuple[int, ...]

    @property
    def numpy(self) -> "np.dtype[Any]":
        if self.dtype == "bf16":
            try:
                import ml_dtypes
                bits: "np.dtype[Any]" = np.dtype(ml_dtypes.bfloat16)
                return bits
            except ImportError:
                pass
        return np.dtype(_NUMPY[self.dtype])

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def _as_array(value: Any) -> "np.ndarray[Any, Any]":
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # NumPy has no such type: its bits
        return _as_array(value.detach().view(sys.modules["torch"].int16)).view(np.uint16)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        try:
            return np.asarray(value)  # bool tensors of PyTorch, which are none of DLPack's
        except (RuntimeError, TypeError, ValueError):
            raise FtError(f"this {type(value).__name__} does not come over by DLPack ({error}): detach it, and bring it to the CPU") from None


def _fitted(value: Any, spec: Spec, what: str) -> "np.ndarray[Any, Any]":
    """Contiguous, of the spec's dtype and shape: whole numbers widen, f64 becomes f32; what could lose more is refused."""
    array = _as_array(value)
    if array.shape != spec.shape:
        hint = "; the batch is compiled in: ftc --set train.batch=N" if array.shape[1:] == spec.shape[1:] and len(array.shape) == len(spec.shape) else ""
        raise FtError(f"{what} {spec} was given an array of shape {list(array.shape)}{hint}")
    wanted = spec.numpy
    if spec.dtype == "bf16" and array.dtype == np.uint16:
        array = np.ascontiguousarray(array).view(wanted)
    if array.dtype != wanted:
        both_float = array.dtype.kind == "f" and wanted.kind == "f"
        whole = array.dtype.kind in "iu" and wanted.kind in "iu"
        if whole and array.size:
            limits = np.iinfo(wanted)
            if int(array.min()) < limits.min or int(array.max()) > limits.max:
                raise FtError(f"{what} {spec} was given {array.dtype} values beyond what {spec.dtype} holds: {int(array.min())} to {int(array.max())}")
        if not (both_float or whole):
            raise FtError(f"{what} {spec} was given {array.dtype}: convert it, for instance by .astype('{wanted}')")
        if both_float and array.dtype.itemsize > wanted.itemsize:
            with np.errstate(over="ignore"):
                narrow = array.astype(wanted)
            if np.any(np.isinf(narrow) & np.isfinite(array)):
                raise FtError(f"{what} {spec} was given {array.dtype} values beyond what {spec.dtype} holds: {array.min()} to {array.max()}")
            array = narrow
    return np.ascontiguousarray(array, dtype=wanted)


class Model:
    """An artifact of ftc, opened for what it will be asked to do.

    device: "auto", "cpu", "cuda", "cuda:1" or "sim"; threads 0: FT_THREADS, OMP_NUM_THREADS, or the cores at hand.
    Opening a .so runs code in it: open only those that you trust.
    """

    def __init__(self, path: "str | os.PathLike[str]", *, device: str = "auto", threads: int = 0, deterministic: bool = False,
                 train: bool = True, predict: bool = True, generate: bool = False) -> None:
        self._handle: Optional[int] = None
        uses = lib.TRAIN * train | lib.PREDICT * predict | lib.GENERATE * generate
        if not uses:
            raise FtError("a model is opened for training, prediction or generation")
        handle = ctypes.c_void_p()
        options = lib.FtOptions(device.encode(), threads, deterministic, uses)
        check(library.ft_open_with(os.fsencode(path), ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle.value
        self.inputs: List[Spec] = list(self._specs(library.ft_input))
        self.outputs: List[Spec] = list(self._specs(library.ft_output)) if predict else []
        self.parameters: List[Spec] = list(self._specs(library.ft_param))
        self.states: List[Spec] = list(self._specs(library.ft_state))  # kept with the parameters and not trained: running statistics
        self._texts = 0  # begun by generate

    # ── its life ──
    def close(self) -> None:
        """Gives all of its memory back. Twice is fine."""
        handle, self._handle = self._handle, None
        if handle is not None:
            library.ft_close(handle)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    @property
    def _open(self) -> int:
        if self._handle is None:
            raise FtError("the model is closed")
        return self._handle

    def _specs(self, at: Any) -> Iterator[Spec]:
        tensor = lib.FtTensor()
        index = 0
        while at(self._open, index, ctypes.byref(tensor)) == 0:
            yield Spec(tensor.name.decode(), tensor.dtype.decode(), tuple(tensor.dim[: tensor.rank]))
            index += 1

    @property
    def device(self) -> str:
        return (library.ft_device(self._open) or b"").decode()

    @property
    def steps(self) -> int:
        """Training steps since init."""
        return int(library.ft_steps(self._open))

    @property
    def batch(self) -> int:
        return self.inputs[0].shape[0]

    def __repr__(self) -> str:
        if self._handle is None:
            return "<ft.Model, closed>"
        return f"<ft.Model on {self.device}: {', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}; {len(self.parameters)} parameters>"

    # ── settings ──
    def get(self, key: str) -> str:
        """Any setting as text, as the file or `set` has it."""
        room = ctypes.create_string_buffer(1 << 16)
        check(library.ft_get(self._open, key.encode(), room, len(room)))
        return room.value.decode()

    def set(self, key: str, value: Union[str, int, float, bool]) -> None:
        """A runtime setting, such as train.lr; what is compiled in (train.batch) cannot change, and what only ftrun reads (train.epochs) is refused."""
        if isinstance(value, np.generic):
            value = value.item()
        text = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)
        check(library.ft_set(self._open, key.encode(), text.encode()))

    def set_total(self, steps_per_epoch: int, total_steps: int) -> None:
        """How long the training is: schedules that decay need it."""
        check(library.ft_set_total(self._open, steps_per_epoch, total_steps))

    def init(self, seed: Optional[int] = None) -> None:
        """Initial parameters and states; the seed becomes `train.seed`, that of dropout's masks, too; without one it is the file's, or what `set` has made of it.

        The step counter becomes 0."""
        if seed is None:
            seed = int(self.get("train.seed"))
        if not 0 <= seed <= 1 << 53:
            raise FtError(f"seed {seed}: from 0 to 2**53")
        check(library.ft_init(self._open, seed))

    # ── steps ──
    def _pointers(self, values: Sequence[Any], named: Mapping[str, Any], may_lack: bool) -> Tuple[Any, List[Any]]:
        first = values[0] if values else None
        if len(values) == 1 and isinstance(first, Mapping) and not named:
            values, named = [], first
        given = dict(zip((spec.name for spec in self.inputs), values))
        if len(values) > len(self.inputs):
            raise FtError(f"{len(values)} arrays for {len(self.inputs)} inputs: {', '.join(map(str, self.inputs))}")
        for name, value in named.items():
            if name not in {spec.name for spec in self.inputs}:
                raise FtError(f"there is no input {name}; there are {', '.join(map(str, self.inputs))}")
            if name in given:
                raise FtError(f"input {name} is given twice")
            given[name] = value
        lacking = [str(spec) for spec in self.inputs if given.get(spec.name) is None]
        if lacking and not may_lack:
            raise FtError(f"what is given lacks {', '.join(lacking)}")
        arrays = [None if given.get(spec.name) is None else _fitted(given[spec.name], spec, "input") for spec in self.inputs]
        addresses = [None if array is None else array.ctypes.data for array in arrays]
        return (ctypes.c_void_p * len(arrays))(*addresses), arrays  # the arrays must outlive the call

    def train_step(self, *batch: Any, **named: Any) -> float:
        """One step on a whole batch, arrays in the order of the inputs or by name; the loss before the update.

        With train.accumulate = k it takes one of k parts; the loss of the k-th is that of all, before it what the part adds to that."""
        pointers, kept = self._pointers(batch, named, False)
        loss = ctypes.c_double()
        check(library.ft_train_step(self._open, pointers, ctypes.byref(loss)))
        del kept
        return loss.value

    def predict(self, *batch: Any, **named: Any) -> "Dict[str, np.ndarray[Any, Any]]":
        """All outputs of the evaluation graph on a whole batch: outputs, loss and metrics. Inputs that no output needs may be left out."""
        pointers, kept = self._pointers(batch, named, True)
        check(library.ft_predict(self._open, pointers))
        del kept
        return {spec.name: self._read(library.ft_read_output, spec) for spec in self.outputs}

    def evaluate(self, batches: Iterable[Batch]) -> Dict[str, float]:
        """The means over whole batches of the loss and of every metric that is one number."""
        sums: Dict[str, float] = {}
        count = 0
        for batch in batches:
            found = self.predict(batch) if isinstance(batch, Mapping) else self.predict(*batch)
            for name, value in found.items():
                if value.size == 1 and value.dtype.kind == "f":
                    sums[name] = sums.get(name, 0.0) + float(value.reshape(()))
            count += 1
        if not count:
            raise FtError("there is no batch to evaluate")
        return {name: value / count for name, value in sums.items()}

    def fit(self, batches: Iterable[Batch], *, steps: Optional[int] = None, callbacks: Sequence[Callback] = (), progress: bool = True) -> List[float]:
        """Trains on batches until they end, or for so many steps; the loss of each step. A callback gets (model, step, loss), and ends it by returning False.

        With train.accumulate = k a step takes k batches."""
        losses: List[float] = []
        begun = self.steps
        show = Progress(begun + steps if steps else None) if progress else None
        if steps is not None and steps <= 0:
            return losses
        for taken, batch in enumerate(batches, 1):
            loss = self.train_step(batch) if isinstance(batch, Mapping) else self.train_step(*batch)
            if self.steps == begun + len(losses):  # a part of a batch
                continue
            losses.append(loss)
            if show:
                if show.total is None and isinstance(batches, Sized):  # now it is known how many a step takes
                    show.total = begun + len(batches) // taken
                show(self, self.steps, loss)
            ended = [callback(self, self.steps, loss) is False for callback in callbacks]
            if any(ended) or len(losses) == steps:
                break
        if show and losses:
            show(self, self.steps, losses[-1], end=True)
        return losses

    # ── parameters ──
    def _read(self, read: Any, spec: Spec) -> "np.ndarray[Any, Any]":
        array = np.empty(spec.shape, spec.numpy)
        check(read(self._open, spec.name.encode(), array.ctypes.data, array.nbytes))
        return array

    def _parameter(self, name: str) -> Spec:
        for spec in self.parameters + self.states:
            if spec.name == name:
                return spec
        raise KeyError(f"there is no parameter {name}")

    def __getitem__(self, name: str) -> "np.ndarray[Any, Any]":
        """A copy of a parameter, or of a state such as running statistics."""
        return self._read(library.ft_read_param, self._parameter(name))

    def __setitem__(self, name: str, value: Any) -> None:
        array = _fitted(value, self._parameter(name), "parameter")
        check(library.ft_write_param(self._open, name.encode(), array.ctypes.data, array.nbytes))

    def state_dict(self) -> "Dict[str, np.ndarray[Any, Any]]":
        """Copies of all parameters and states."""
        return {spec.name: self[spec.name] for spec in self.parameters + self.states}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """All parameters, and the states that are there, by PyTorch's names; CPU tensors of PyTorch are fine.

        States that are not there stay as they are, and PyTorch's counts of batches (num_batches_tracked), which nothing here reads, are passed over."""
        parameters = {spec.name for spec in self.parameters}
        known = parameters | {spec.name for spec in self.states}
        given = {name: value for name, value in values.items() if name in known or name.split(".")[-1] != "num_batches_tracked"}
        if not parameters <= set(given) <= known:
            raise FtError(f"the state dict lacks {sorted(parameters - set(given))} and has {sorted(set(given) - known)} that the model has not")
        fitted = {name: _fitted(value.detach() if hasattr(value, "detach") else value, self._parameter(name), "parameter") for name, value in given.items()}
        for name, value in fitted.items():
            self[name] = value

    # ── files ──
    def load_weights(self, path: "str | os.PathLike[str]") -> None:
        check(library.ft_load_weights(self._open, os.fsencode(path)))

    def save_weights(self, path: "str | os.PathLike[str]") -> None:
        check(library.ft_save_weights(self._open, os.fsencode(path)))

    def save(self, path: "str | os.PathLike[str]") -> None:
        """A checkpoint: all that training goes on from exactly, but for the place in the data."""
        check(library.ft_save(self._open, os.fsencode(path)))

    def resume(self, path: "str | os.PathLike[str]") -> None:
        """From a checkpoint, or the newest whole one of a folder."""
        check(library.ft_resume(self._open, os.fsencode(path)))

    # ── generation ──
    @property
    def vocabulary(self) -> int:
        """How many tokens there are; 0: the model does not generate."""
        return int(library.ft_vocabulary(self._open))

    def generate(self, prompt: Sequence[int], count: int, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0) -> Iterator[int]:
        """Goes on with a text of tokens, one token at a time. A model has one text at a time: where another one was begun, this one goes no further."""
        self._texts = mine = self._texts + 1
        tokens = (ctypes.c_int64 * len(prompt))(*prompt)
        check(library.ft_prompt(self._open, tokens, len(prompt), seed))
        sampling = lib.FtSampling(temperature, top_k, top_p)
        token = ctypes.c_int64()
        for _ in range(count):
            if self._texts != mine:
                raise FtError("another text was begun with this model, which has one at a time: open it twice for two side by side")
            check(library.ft_next(self._open, ctypes.byref(sampling), ctypes.byref(token)))
            yield token.value

    def scores(self) -> "np.ndarray[Any, Any]":
        """Of the next token, for each of the vocabulary."""
        array = np.empty(self.vocabulary, np.float32)
        check(library.ft_scores(self._open, array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), array.nbytes))
        return array
