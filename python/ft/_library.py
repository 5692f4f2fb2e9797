"""libft.so by ctypes: where it is found, and the signatures of ft.h's functions (which says what they do)."""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p


class FtError(ValueError):
    """What ft says of a mistake of the caller's: a wrong file, shape, label, setting."""


class FtFault(RuntimeError):
    """A fault of the machine: a full disk, no memory, a lost device."""


class FtTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("rank", c_int), ("dim", c_int64 * 8), ("bytes", c_int64)]


class FtOptions(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("threads", c_int), ("deterministic", c_int), ("uses", c_uint)]


class FtSampling(ctypes.Structure):
    _fields_ = [("temperature", c_double), ("top_k", c_int64), ("top_p", c_double)]


TRAIN, PREDICT, GENERATE = 1, 2, 4
_MODEL = c_void_p
_BATCH = POINTER(c_void_p)
_SIGNATURES = {  # name: (result, arguments)
    "ft_error": (c_char_p, []),
    "ft_open_with": (c_int, [c_char_p, POINTER(FtOptions), POINTER(_MODEL)]),
    "ft_close": (None, [_MODEL]),
    "ft_device": (c_char_p, [_MODEL]),
    "ft_get": (c_int, [_MODEL, c_char_p, c_char_p, c_size_t]),
    "ft_set": (c_int, [_MODEL, c_char_p, c_char_p]),
    "ft_set_total": (c_int, [_MODEL, c_int64, c_int64]),
    "ft_init": (c_int, [_MODEL, c_uint64]),
    "ft_input": (c_int, [_MODEL, c_int, POINTER(FtTensor)]),
    "ft_output": (c_int, [_MODEL, c_int, POINTER(FtTensor)]),
    "ft_param": (c_int, [_MODEL, c_int, POINTER(FtTensor)]),
    "ft_state": (c_int, [_MODEL, c_int, POINTER(FtTensor)]),
    "ft_train_step": (c_int, [_MODEL, _BATCH, POINTER(c_double)]),
    "ft_predict": (c_int, [_MODEL, _BATCH]),
    "ft_read_output": (c_int, [_MODEL, c_char_p, c_void_p, c_size_t]),
    "ft_read_param": (c_int, [_MODEL, c_char_p, c_void_p, c_size_t]),
    "ft_write_param": (c_int, [_MODEL, c_char_p, c_void_p, c_size_t]),
    "ft_steps": (c_int64, [_MODEL]),
    "ft_load_weights": (c_int, [_MODEL, c_char_p]),
    "ft_save_weights": (c_int, [_MODEL, c_char_p]),
    "ft_save": (c_int, [_MODEL, c_char_p]),
    "ft_resume": (c_int, [_MODEL, c_char_p]),
    "ft_vocabulary": (c_int64, [_MODEL]),
    "ft_prompt": (c_int, [_MODEL, POINTER(c_int64), c_int64, c_uint64]),
    "ft_next": (c_int, [_MODEL, POINTER(FtSampling), POINTER(c_int64)]),
    "ft_append": (c_int, [_MODEL, c_int64]),
    "ft_scores": (c_int, [_MODEL, POINTER(c_float), c_size_t]),
}


def _open() -> ctypes.CDLL:
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libft.so.0")
    named = os.environ.get("FT_LIBRARY")
    path = named or (here if os.path.exists(here) else "libft.so.0")
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"ft's library cannot be opened: {error}; install the package libft0, or set FT_LIBRARY to a build's lib/libft.so") from None
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


library = _open()


def check(code: int) -> None:
    """Raises what ft_error says."""
    if code:
        message = (library.ft_error() or b"").decode(errors="replace")
        raise (FtError if code == 1 else FtFault)(message)
