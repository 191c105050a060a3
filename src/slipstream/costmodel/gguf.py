"""The metadata at the start of a GGUF file: what model it is and which tokenizer it has. The weights are not read.

Format: ggml's specification of GGUF, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["MAGIC", "Value", "read_metadata"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_HEADER = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of keys
_LENGTH = struct.Struct("<Q")
_TYPE = struct.Struct("<I")
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9

Value = str | int | float | bool | list["Value"]


def read_metadata(path: Path) -> dict[str, Value]:
    """Every key of the file's metadata with its value. Raises `ImpossibleInput` for a file that can not be read so."""
    try:
        if path.stat().st_size < _HEADER.size:
            raise ImpossibleInput(f"{path} is no GGUF file: it has fewer bytes than the header of one")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _metadata(content, path)
    except (struct.error, UnicodeDecodeError, KeyError, IndexError, RecursionError):
        raise ImpossibleInput(f"{path} is cut short or damaged: its GGUF metadata can not be read") from None
    except OSError as error:
        raise ImpossibleInput(f"{path} can not be read: {error.strerror}") from None


def _metadata(content: mmap.mmap, path: Path) -> dict[str, Value]:
    if content[:4] != MAGIC:
        raise ImpossibleInput(f"{path} is no GGUF file: it begins with {content[:4]!r}")
    _, version, _, keys = _HEADER.unpack_from(content)
    if version not in VERSIONS:
        raise ImpossibleInput(f"{path} has GGUF version {version}, and only 2 and 3 (little-endian) are known")
    metadata = {}
    at = _HEADER.size
    for _ in range(keys):
        key, at = _string(content, at)
        (kind,) = _TYPE.unpack_from(content, at)
        metadata[key], at = _value(content, at + _TYPE.size, kind)
    return metadata


def _value(content: mmap.mmap, at: int, kind: int) -> tuple[Value, int]:
    """The value of type ``kind`` that begins at ``at``, and where the next one begins."""
    if kind == _STRING:
        return _string(content, at)
    if kind != _ARRAY:
        number = struct.Struct("<" + _NUMBERS[kind])
        return number.unpack_from(content, at)[0], at + number.size
    (inner,), (count,) = _TYPE.unpack_from(content, at), _LENGTH.unpack_from(content, at + _TYPE.size)
    at += _TYPE.size + _LENGTH.size
    if count > len(content):  # a damaged count must not become a reservation of memory
        raise IndexError(count)
    if inner in _NUMBERS:
        numbers = struct.Struct(f"<{count}{_NUMBERS[inner]}")
        return list(numbers.unpack_from(content, at)), at + numbers.size
    values: list[Value] = []
    for _ in range(count):
        value, at = _value(content, at, inner)
        values.append(value)
    return values, at


def _string(content: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(content, at)
    start = at + _LENGTH.size
    if start + length > len(content):
        raise IndexError(start + length)
    return content[start : start + length].decode(), start + length
