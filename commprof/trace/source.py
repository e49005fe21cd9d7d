"""A path or URL as a stream of decompressed blocks; the first bytes decide the format, never the name."""

from __future__ import annotations

import os
import queue
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from commprof.errors import InputRefused

BLOCK_BYTES = 4 << 20
_READ_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
"""What one call may decompress to: a megabyte of zeros packed is a gigabyte."""

_ZSTD_BYTES = 1 << 10
"""What is given to the zstd decoder at once, which knows no such limit: a block of 128 KB may take four bytes."""

Progress = Callable[[int], None]

_REFUSED_MAGICS = (
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"Rar!", "RAR"),
)


@dataclass(slots=True)
class Source:
    """One opened input: ``blocks()`` yields decompressed bytes, then ``truncated`` says if it ended early or damaged.

    ``bad_checksum`` says that all of it could be unpacked, but that it is not what its checksum was made of.
    """

    path: str
    stream: IO[bytes]
    format: str
    size: int
    progress: Progress | None = None
    truncated: bool = field(default=False, init=False)
    bad_checksum: bool = field(default=False, init=False)

    def blocks(self, *, background: bool = True) -> Iterator[bytes]:
        """Decompressed blocks of about :data:`BLOCK_BYTES`.

        With ``background`` decompression runs in a thread of its own, which pays where a core is idle.
        """
        readers = {"gzip": self._gzip, "zstd": self._zstd, "zip": self._zip, "plain": self._plain}
        produce = readers[self.format]
        pieces = _in_background(produce) if background and self.format != "plain" else produce()
        with self.stream:
            yield from _regroup(pieces)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self.stream.read(_READ_BYTES):
            if self.progress is not None:
                self.progress(len(chunk))
            yield chunk

    def _plain(self) -> Iterator[bytes]:
        return self._chunks()

    def _gzip(self) -> Iterator[bytes]:
        """Every member of a gzip file; what follows the last one is zero padding or makes it truncated."""
        from isal import isal_zlib

        member = None
        read = begun = given = 0
        for chunk in self._chunks():
            data = chunk
            read += len(chunk)
            while data:
                if member is None:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    member = isal_zlib.decompressobj(wbits=31)
                    begun, given = read - len(data), 0
                try:
                    out = member.decompress(data, _PIECE_BYTES)
                except (isal_zlib.error, zlib.error):  # type: ignore[misc]
                    self.truncated = True
                    if last := self._unchecked(begun, given):
                        yield last
                    return
                given += len(out)
                if out:
                    yield out
                data = member.unused_data if member.eof else member.unconsumed_tail
                if member.eof:
                    member = None
        self.truncated = member is not None

    def _unchecked(self, begun: int, given: int) -> bytes:
        """What follows the ``given`` bytes of the gzip member that begins there, if only its checksum is wrong.

        The decoder finds that out together with the last piece, and drops it. Nothing if the data itself is damaged.
        """
        from isal import isal_zlib

        self.stream.seek(begun)
        data = self.stream.read(_READ_BYTES)
        data = data[_header_length(data) :]
        member = isal_zlib.decompressobj(wbits=-15)
        found, last = 0, b""
        while data and not member.eof and len(last) <= _PIECE_BYTES:
            try:
                out = member.decompress(data, _PIECE_BYTES)
            except (isal_zlib.error, zlib.error):  # type: ignore[misc]
                return b""
            last += out[max(given - found, 0) :]
            found += len(out)
            data = member.unconsumed_tail or self.stream.read(_READ_BYTES)
        self.bad_checksum = member.eof
        return last if member.eof else b""

    def _zstd(self) -> Iterator[bytes]:
        import zstandard

        member = None
        for data in (
            chunk[at : at + _ZSTD_BYTES] for chunk in self._chunks() for at in range(0, len(chunk), _ZSTD_BYTES)
        ):
            while data:
                if member is None:
                    member = zstandard.ZstdDecompressor().decompressobj()
                try:
                    out = member.decompress(data)
                except zstandard.ZstdError:
                    self.truncated = True
                    return
                if out:
                    yield out
                data = member.unused_data if member.eof else b""
                if member.eof:
                    member = None
        self.truncated = member is not None

    def _zip(self) -> Iterator[bytes]:
        try:
            with zipfile.ZipFile(self.stream) as archive:
                members = [m for m in archive.infolist() if not m.is_dir()]
                if len(members) != 1:
                    raise InputRefused(
                        f"{self.path}: a zip archive of {len(members)} files",
                        hint="unpack it and give the folder",
                    )
                with archive.open(members[0]) as data:
                    while piece := data.read(BLOCK_BYTES):
                        yield piece
        except InputRefused:
            raise
        # The standard library finds damage in many ways: lzma, struct and codec errors, seeks to before the start.
        except Exception as error:
            if isinstance(error, zipfile.BadZipFile):
                raise InputRefused(f"{self.path}: damaged zip archive ({error})", hint="copy it again") from None
            self.truncated = True


def open_source(path: str, progress: Progress | None = None) -> Source:
    """Open a local path or any fsspec URL.

    Raises :class:`~commprof.errors.InputRefused` when it cannot be opened or is of a format that is not read.
    """
    try:
        stream, size = _open(path)
        magic = stream.read(16)
        stream.seek(0)
    except (OSError, ValueError, ImportError) as error:
        raise InputRefused(f"{path}: {_reason(error)}", hint="check the path") from None
    try:
        kind = _format(path, magic)
    except InputRefused:
        stream.close()
        raise
    return Source(path, stream, kind, size, progress)


def _open(path: str) -> tuple[IO[bytes], int]:
    if "://" not in path:
        return open(path, "rb", buffering=0), os.path.getsize(path)
    import fsspec

    filesystem, inner = fsspec.url_to_fs(path)
    return filesystem.open(inner, "rb"), int(filesystem.size(inner) or 0)


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a folder"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    return " ".join(str(error).split()) or type(error).__name__


def _format(path: str, magic: bytes) -> str:
    if magic.startswith(b"\x1f\x8b"):
        return "gzip"
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    if magic.startswith(b"PK\x03\x04"):
        return "zip"
    for prefix, name in _REFUSED_MAGICS:
        if magic.startswith(prefix):
            raise InputRefused(f"{path}: {name} compression is not read", hint="use gzip, zstd, zip or none")
    return "plain"


def _header_length(member: bytes) -> int:
    """Bytes before the packed data of a gzip member, which may hold further fields, a name and a comment (RFC 1952)."""
    flags, length = member[3] if len(member) > 3 else 0, 10
    if flags & 4:
        length += 2 + int.from_bytes(member[length : length + 2], "little")
    for text in (8, 16):
        if flags & text:
            length = member.find(b"\0", length) + 1 or len(member)
    return length + (2 if flags & 2 else 0)


def _regroup(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces into blocks of at least :data:`BLOCK_BYTES`."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _in_background(produce: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Run a producer in a thread: decompression releases the interpreter lock, so decoding goes on beside it."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=4)
    stop = threading.Event()

    def work() -> None:
        try:
            for piece in produce():
                while not stop.is_set():
                    try:
                        ready.put(piece, timeout=0.1)
                        break
                    except queue.Full:
                        continue
                if stop.is_set():
                    return
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=work, name="commprof-decompress", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        while not ready.empty():
            ready.get_nowait()
        thread.join(timeout=5)
