"""Which identifiers speak of a device or of a process-group backend."""

from __future__ import annotations

import re

_DEVICE_WORDS = frozenset(["device", "devices", "dev", "devs"])
_DEVICE_TAILS = _DEVICE_WORDS | frozenset(
    "type types name str string arg map location choice choices option kind".split()
)
_WHOLE_DEVICE_WORDS = frozenset({"map_location", "map_loc", "devicetype", "torchdevice"})
_BACKEND_WORDS = frozenset({"backend", "backends"})
_NOT_PROCESS_GROUP = frozenset(
    "attn attention compile dynamo plot matplotlib quant quantization kernel rnnt "
    "loss render video audio image tokenizer data decode decoding".split()
)


def _parts(identifier: str) -> list[str]:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier)
    return [part for part in re.split(r"[_\-.]+", snake.lower()) if part]


def names_device(identifier: str) -> bool:
    """Whether a variable, keyword or flag of this name holds a device or device type.

    >>> [names_device(n) for n in ("device", "--device", "torch_device", "device_type", "dev")]
    [True, True, True, True, True]
    >>> [names_device(n) for n in ("device_id", "device_count", "develop", "cuda", "device_ids")]
    [False, False, False, False, False]
    """
    if identifier.lower() in _WHOLE_DEVICE_WORDS:
        return True
    parts = _parts(identifier)
    if not parts:
        return False
    if parts[-1] in _DEVICE_WORDS:
        return True
    return parts[-1] in _DEVICE_TAILS and any(part in _DEVICE_WORDS for part in parts)


def names_backend(identifier: str) -> bool:
    """Whether a variable, keyword or flag of this name holds a process-group backend.

    >>> [names_backend(n) for n in ("backend", "--dist-backend", "DIST_BACKEND", "dist_backends")]
    [True, True, True, True]
    >>> [names_backend(n) for n in ("attn_backend", "backend_flags", "background")]
    [False, False, False]
    """
    parts = _parts(identifier)
    return bool(parts) and parts[-1] in _BACKEND_WORDS and not _NOT_PROCESS_GROUP & set(parts)
