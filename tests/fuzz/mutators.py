"""Ways to damage a file, each a function of the clean bytes and a random source; grouped by what they touch."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable

Random = random.Random
Mutator = Callable[[bytes, Random], bytes]

_MEANINGFUL = b"{}[]\",:\\\n\x00 -+eE.tfnNI0'/"
_VALUE = re.compile(rb'(?<=:)\s*(?:"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|null|true|false)')
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NUMBER = re.compile(rb"(?<=[:\[, ])-?\d+(?:\.\d+)?(?=[,}\] \n])")
_BORDER = re.compile(rb"\}\s*,\s*\{")
_EVENT_KEYS = ("ph", "ts", "dur", "cat", "pid", "tid", "name", "args")

NOT_FINITE = b"NaN -NaN nan Nan inf -inf +inf Infinity -Infinity infinity INF nan(ind) 1.#INF -1.#IND 1.#QNAN".split()
FORMS = (
    b"+1 .5 5. -.5 01 00 -01 1e3 1E+3 1e-3 1e 1e+ - -- +- -0 -0.0 0x10 1_000 1,5 1e400 -1e400 1e308 1e309 1e19 "
    b"9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 4611686018427387904 "
    b"-9223372036854775808 4611686018427387 9007199254740993 8796093022208.001 1712345678901234.567 "
    b"1712345678901234567.891 0.0004 0.0005 123456789012345678901234567890.5 1e15 1e16 9e15 1E400 1e0400 1e00001"
).split()
WRONG = (
    b'null true false "" "5" " 7 " "x" "1.5" "nan" "inf" "1e5" "--5.5" "1_0" "\\u00b2" "\xc2\xb2" "\\ud83d\\ude00" '
    b'[] [1] [[1]] {} {"a":1} [null] 0 1 -1 1.5 -1.5 1e3 "0x10" [1,2,3] [0.5] "[0,1]" "null" "\\u0000"'
).split(b" ")


def _spot(data: bytes, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def _replaced(data: bytes, pattern: re.Pattern[bytes], rng: Random, make: Callable[[re.Match[bytes]], bytes]) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + make(match) + data[match.end() :]


def _events(data: bytes) -> list[tuple[int, int]]:
    """Where each event lies, by brackets alone; the clean files have no braces in strings."""
    start = data.find(b"[", max(data.find(b'"traceEvents"'), 0)) + 1
    spans, depth, begin = [], 0, 0
    for match in re.finditer(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', data[start:]):
        token = match[0]
        if token in (b"{", b"["):
            if depth == 0:
                begin = start + match.start()
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth < 0:
                break
            if depth == 0:
                spans.append((begin, start + match.end()))
    return spans


# Bytes.


def cut(data: bytes, rng: Random) -> bytes:
    return data[: _spot(data, rng)]


def flip_bits(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def delete_range(data: bytes, rng: Random) -> bytes:
    start = _spot(data, rng)
    return data[:start] + data[start + rng.choice((1, 1, 2, 5, rng.randint(1, 400))) :]


def insert_bytes(data: bytes, rng: Random) -> bytes:
    at = _spot(data, rng)
    return data[:at] + bytes(rng.choices(range(256), k=rng.choice((1, 1, 2, 8)))) + data[at:]


def insert_meaningful(data: bytes, rng: Random) -> bytes:
    at = _spot(data, rng)
    return data[:at] + bytes(rng.choices(_MEANINGFUL, k=rng.choice((1, 1, 2, 3)))) + data[at:]


def overwrite_meaningful(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[rng.randrange(len(changed))] = rng.choice(_MEANINGFUL)
    return bytes(changed)


def duplicate_range(data: bytes, rng: Random) -> bytes:
    start, length = _spot(data, rng), rng.choice((1, 2, 10, 100, 400))
    return data[: start + length] + data[start:]


def move_range(data: bytes, rng: Random) -> bytes:
    start, length = _spot(data, rng), rng.randint(1, 400)
    piece, rest = data[start : start + length], data[:start] + data[start + length :]
    at = _spot(rest, rng)
    return rest[:at] + piece + rest[at:]


def splice_with_itself(data: bytes, rng: Random) -> bytes:
    return data[: _spot(data, rng)] + data[_spot(data, rng) :]


def interleave(data: bytes, rng: Random) -> bytes:
    """Two writers in one file."""
    size = rng.choice((16, 64, 256, 1024))
    other = data.replace(b'"rank": 0', b'"rank": 1').replace(b'"rank":0', b'"rank":1')
    pieces = [one[at : at + size] for at in range(0, len(data), size) for one in (data, other)]
    return b"".join(pieces)


def append(data: bytes, rng: Random) -> bytes:
    tail = rng.choice((b"\n", b"\0" * 8, b"}", b"]", b"]}", b",", b"x", b'{"a":1}', data, b"\xff", b"null", b" \t\r\n"))
    return data + tail


def prepend(data: bytes, rng: Random) -> bytes:
    return rng.choice((b"\n\n  ", b"\0", b"x", b"[", b"{", b",", b"\x1b", b'"', b"//x\n", b"\xef\xbb\xbf ")) + data


def oversized_range(data: bytes, rng: Random) -> bytes:
    """A long run of one byte."""
    at = _spot(data, rng)
    return data[:at] + bytes([rng.choice(b' \n,{}[]"\\a0\x00')]) * rng.choice((64, 500, 2000)) + data[at:]


# Encodings.


def reencode(data: bytes, rng: Random) -> bytes:
    text = data.decode()
    encoding = rng.choice(
        ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-7")
    )
    return text.encode(encoding)


def reencode_part(data: bytes, rng: Random) -> bytes:
    start = _spot(data, rng)
    part = data[start : start + 200].decode("latin-1").encode(rng.choice(("utf-16-le", "utf-32-be", "cp037")))
    return data[:start] + part + data[start + 200 :]


def broken_utf8_in_string(data: bytes, rng: Random) -> bytes:
    bad = rng.choice(
        (b"\xff", b"\x80", b"\xf0", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe9", b"\xf5\x80", b"\xfe")
    )
    return _in_string(data, rng, bad)


def control_byte_in_string(data: bytes, rng: Random) -> bytes:
    return _in_string(data, rng, bytes([rng.randrange(0x20)]))


def control_byte_anywhere(data: bytes, rng: Random) -> bytes:
    at = _spot(data, rng)
    return data[:at] + bytes([rng.choice([*range(0x20), 0x7F])]) + data[at:]


def _in_string(data: bytes, rng: Random, piece: bytes) -> bytes:
    def make(match: re.Match[bytes]) -> bytes:
        at = rng.randint(1, len(match[0]) - 1)
        return match[0][:at] + piece + match[0][at:]

    return _replaced(data, _STRING, rng, make)


def raw_quote(data: bytes, rng: Random) -> bytes:
    piece = rng.choice((b'"', b'""', b'", "', b'": "', b'"}', b'"},{"', b'"]}', b'",', b'":', b'"{', b'\\""', b'"a"'))
    return _in_string(data, rng, piece)


def raw_backslash(data: bytes, rng: Random) -> bytes:
    piece = rng.choice(
        (b"\\", b"\\x", b"\\u", b"\\u12", b"\\ud800", b"\\udc00", b"\\ud800\\u0041", b"C:\\d", b"\\\\\\", b"\\'")
    )
    return _in_string(data, rng, piece)


def backslash_before_close(data: bytes, rng: Random) -> bytes:
    return _replaced(data, _STRING, rng, lambda m: m[0][:-1] + b"\\" * rng.choice((1, 1, 2, 3)) + b'"')


# Values.


def not_finite(data: bytes, rng: Random) -> bytes:
    return _replaced(data, _NUMBER, rng, lambda m: rng.choice(NOT_FINITE))


def number_form(data: bytes, rng: Random) -> bytes:
    return _replaced(data, _NUMBER, rng, lambda m: rng.choice(FORMS))


def long_digits(data: bytes, rng: Random) -> bytes:
    count = rng.choice((20, 310, 400, 4299, 4301, 6000))
    form = rng.choice((b"%s", b"-%s", b"%s.5", b"0.%s", b'"%s"', b'"-%s"', b'"%s.5"', b'"[%s]"', b"1e%s", b'"1e%s"'))
    return _replaced(data, rng.choice((_NUMBER, _VALUE)), rng, lambda m: form % (rng.choice(b"19").to_bytes() * count))


def wrong_type(data: bytes, rng: Random) -> bytes:
    return _replaced(data, _VALUE, rng, lambda m: rng.choice(WRONG))


def wrong_type_everywhere(data: bytes, rng: Random) -> bytes:
    """One key of every event gets a value of another type."""
    key = rng.choice((*_EVENT_KEYS, *_keys(data)))
    value = rng.choice(WRONG)
    pattern = re.compile(
        b'("' + re.escape(key.encode()) + rb'"\s*:\s*)(?:"(?:[^"\\]|\\.)*"|-?\d[\d.]*|null|true|false)'
    )
    share = rng.choice((1.0, 1.0, 0.5))
    return pattern.sub(lambda m: m[1] + value if rng.random() < share else m[0], data)


def other_key(data: bytes, rng: Random) -> bytes:
    keys = _keys(data)
    return _replaced(data, _KEY, rng, lambda m: b'"' + rng.choice(keys).encode() + b'": ')


def remove_key(data: bytes, rng: Random) -> bytes:
    key = rng.choice(_keys(data)).encode()
    return re.sub(b'"' + re.escape(key) + rb'"\s*:\s*(?:"(?:[^"\\]|\\.)*"|-?\d[\d.]*|null|true|false)\s*,?', b"", data)


def change_digits(data: bytes, rng: Random) -> bytes:
    return _replaced(
        data, _NUMBER, rng, lambda m: str(rng.choice((0, 1, -1, 10**6, 2**53, 10**15, -(10**15)))).encode()
    )


def extreme_times(data: bytes, rng: Random) -> bytes:
    """Times at the edge of what 64 bits hold, in several events."""
    values = [
        b"1e15",
        b"-1e15",
        b"4e15",
        b"4611686018427386",
        b"-4611686018427386",
        b"9e12",
        b"8796093022208",
        b"1e18",
        b"-1",
    ]
    pattern = re.compile(rb'("(?:ts|dur)"\s*:\s*)-?\d[\d.]*')
    share = rng.choice((0.1, 0.3, 1.0))
    return pattern.sub(lambda m: m[1] + rng.choice(values) if rng.random() < share else m[0], data)


def _keys(data: bytes) -> list[str]:
    return sorted({match[1].decode() for match in _KEY.finditer(data)})


# Structure.


def repeat_events(data: bytes, rng: Random) -> bytes:
    spans = _events(data)
    start, end = rng.choice(spans)
    return data[:end] + (b"," + data[start:end]) * rng.choice((1, 1, 3, 20)) + data[end:]


def drop_event(data: bytes, rng: Random) -> bytes:
    start, end = rng.choice(_events(data))
    if rng.random() < 0.5:  # with the comma behind it
        end = re.compile(rb"\s*,?").match(data, end).end()  # type: ignore[union-attr]
    return data[:start] + data[end:]


def shuffle_events(data: bytes, rng: Random) -> bytes:
    spans = _events(data)
    pieces = [data[a:b] for a, b in spans]
    rng.shuffle(pieces)
    return data[: spans[0][0]] + rng.choice((b",", b" , ", b",\n")).join(pieces) + data[spans[-1][1] :]


def foreign_event(data: bytes, rng: Random) -> bytes:
    """Something else among the events, with and without its comma."""
    piece = rng.choice(
        (
            b"null", b"5", b'"x"', b"[]", b"[[]]", b"{}", b'{"ph":1}', b'{"ph":"Q"}', b'{"ph":"X"}', b"x", b"...",
            b"// c\n",
            b"/* c */", b'{"ph":"X","ts":1,"dur":1,"args":5}',
            b'{"ph":"X","ts":1,"dur":1,"args":[],"name":"a","cat":"kernel"}',
            b'{"ph":"M","args":5}', b'{"ph":"M","args":{"name":[1]}}', b'{"ph":null}', b'{"name":"a"}', b"NaN",
            b"-", b"true", b'"',
            b'{"ph":"i","s":"g","ts":NaN}', b'{"ph":"B","ts":1e400}',
            b'{"ph":"X","ts":true,"dur":1,"cat":"kernel","name":"k"}',
            b'{"a":[{},{}],"ph":"X"}', b'{"ph":"X","args":{"args":{"args":{}}}}', b'{"ph":"s","ph":"f"}',
        )
    )  # fmt: skip
    start, end = rng.choice(_events(data))
    if rng.random() < 0.2:
        return data[:end] + piece + data[end:]
    return data[:start] + piece + b"," + data[start:] if rng.random() < 0.5 else data[:end] + b"," + piece + data[end:]


def duplicate_key(data: bytes, rng: Random) -> bytes:
    """A key that comes again with another value, at any level."""
    key = rng.choice((*_EVENT_KEYS, *_keys(data))).encode()
    value = rng.choice(
        (b"1", b"2.5", b'"X"', b'"B"', b'"kernel"', b"null", b"{}", b'{"stream": 3}', b"[]", b"NaN", b'"a"')
    )
    spaced = rng.choice((b'"%s":%s,', b'"%s": %s, ', b'"%s" : %s ,', b'"\\u00%02x%s":%s,'))
    pair = spaced % ((key, value) if spaced.count(b"%") == 2 else (key[0] if key else 97, key[1:], value))
    at = rng.choice([match.start() for match in _KEY.finditer(data)])
    return data[:at] + pair + data[at:]


def nesting(data: bytes, rng: Random) -> bytes:
    depth = rng.choice((2, 50, 300, 500, 900, rng.randint(900, 1010), 1500, 3000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
    core = rng.choice((b"1", b"", b'"x"')) if opening == b"[" else b"1"
    closed = closing * depth if rng.random() < 0.8 else b""
    value = opening * depth + core + closed
    if rng.random() < 0.2:
        start, _ = rng.choice(_events(data))
        return data[:start] + value + b"," + data[start:]
    return _replaced(data, _VALUE, rng, lambda m: value)


def whitespace(data: bytes, rng: Random) -> bytes:
    """White space between tokens of every kind; a valid file all the same."""
    share = rng.choice((0.05, 0.5, 1.0))
    gaps = (b" ", b"\n", b"\t", b"\r\n", b"   ", b"")

    def make(match: re.Match[bytes]) -> bytes:
        if match[1] is not None or rng.random() > share:
            return match[0]
        return rng.choice(gaps) + match[0] + rng.choice(gaps)

    return re.sub(rb'("(?:[^"\\]|\\.)*")|[{}\[\],:]', make, data)


def layout(data: bytes, rng: Random) -> bytes:
    """The same document written anew."""
    value = json.loads(data)
    style = rng.choice(
        ({"separators": (",", ":")}, {"indent": 1}, {"indent": "\t"}, {"ensure_ascii": False}, {"sort_keys": True})
    )
    return json.dumps(value, **style).encode()


def commas(data: bytes, rng: Random) -> bytes:
    sub = rng.choice((b"},,{", b"}{", b"} {", b"}, ,\n{", b"};{", b"},]{", b"}\n{"))
    return _replaced(data, _BORDER, rng, lambda m: sub)


def trailing_comma(data: bytes, rng: Random) -> bytes:
    return _replaced(data, re.compile(rb"(?<=[}\]\d\"])\s*[\]}]"), rng, lambda m: b"," + m[0])


def list_root(data: bytes, rng: Random) -> bytes:
    spans = _events(data)
    body = data[spans[0][0] : spans[-1][1]]
    return b"[" + body + rng.choice((b"]", b"", b",", b",]", b"]]", b"]}", b"\n", b",\n", b"] x", b",,"))


def close_wrong(data: bytes, rng: Random) -> bytes:
    end = _events(data)[-1][1]
    return data[:end] + rng.choice(
        (b"", b"]", b"}", b"]}}", b"]]}", b"}]}", b",", b",]}", b"]},", b'], "a": 1', b'],"a":{}}', b"]\0}")
    )


def metadata_elsewhere(data: bytes, rng: Random) -> bytes:
    """Top-level keys around the events: moved, repeated, broken."""
    extra = rng.choice(
        (
            b'"distributedInfo": {"rank": 0, "world_size": 2}', b'"distributedInfo": "{\\"rank\\": 1}"',
            b'"distributedInfo": "{\\"rank\\": NaN}"', b'"distributedInfo": "[[[["',
            b'"distributedInfo": {"rank": 1e3}',
            b'"distributedInfo": {"rank": "\\u00b2"}', b'"distributedInfo": {"rank": true}', b'"distributedInfo": 5',
            b'"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": "[0, 1]"}]}', b'"x": NaN',
            b'"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": [1], "ranks": [true, -1], '
            b'"pg_size": "\\u00b2"}, 5]}',
            b'"baseTimeNanoseconds": 1e30', b'"baseTimeNanoseconds": "\\u00b2"', b'"baseTimeNanoseconds": 1.5',
            b'"a": 1e400',
            b'"baseTimeNanoseconds": "-5"', b'"baseTimeNanoseconds": "--5"',
            b'"baseTimeNanoseconds": 4611686018427387903',
            b'"deviceProperties": [{"id": 0, "name": null, "numSms": -1}, 5]', b'"deviceProperties": {"a": 1}',
            b'"traceEvents": []',
            b'"traceEvents": [{"ph":"X"}]', b'"traceEvents": 5', b'"host_name": [1]', b'"schemaVersion": {}',
            b'"a": "C:\\x"',
            b'"a": "\xff"', b'"a": {"traceEvents": [1]}', b'"a": "\\"traceEvents\\": ["', b'"a": "}]}"',
            b'"a": [{"b": [{}]}, {}]',
            b'"a": "\\ud800"', b'"deviceProperties": [{"numSms": 1e3, "name": "\\ud800"}]',
            b'"distributedInfo": {"rank": -0.0}',
        )
    )  # fmt: skip
    if rng.random() < 0.5 and data.lstrip().startswith(b"{"):
        at = data.index(b"{") + 1
        return data[:at] + extra + b"," + data[at:]
    end = data.rstrip().rfind(b"}")
    return data[:end] + b"," + extra + data[end:]


# Compression.


def gzip_whole(data: bytes, rng: Random) -> bytes:
    count = rng.choice((1, 2, 3, 7))
    cuts = sorted(_spot(data, rng) for _ in range(count - 1))
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return b"".join(gzip.compress(part, mtime=0) for part in parts) + b"\0" * rng.choice((0, 0, 5, 600))


def gzip_damaged(data: bytes, rng: Random) -> bytes:
    return rng.choice(_DAMAGES)(gzip_whole(data, rng), rng)


def gzip_of_damaged(data: bytes, rng: Random) -> bytes:
    return gzip_whole(rng.choice(_DAMAGES)(data, rng), rng)


def zstd_any(data: bytes, rng: Random) -> bytes:
    import zstandard

    pack = zstandard.ZstdCompressor(level=1, write_checksum=rng.random() < 0.5)
    at = _spot(data, rng)
    packed = pack.compress(data) if rng.random() < 0.5 else pack.compress(data[:at]) + pack.compress(data[at:])
    return packed if rng.random() < 0.2 else rng.choice(_DAMAGES)(packed, rng)


def zip_any(data: bytes, rng: Random) -> bytes:
    buffer = io.BytesIO()
    method = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for index in range(rng.choice((1, 1, 1, 1, 0, 2))):
            archive.writestr(zipfile.ZipInfo(f"trace{index}.json"), data, method)
    packed = buffer.getvalue()
    return packed if rng.random() < 0.2 else rng.choice(_DAMAGES)(packed, rng)


_DAMAGES: tuple[Mutator, ...] = (cut, flip_bits, delete_range, insert_bytes, duplicate_range, append)

PLAIN: tuple[Mutator, ...] = (
    cut, flip_bits, delete_range, insert_bytes, insert_meaningful, overwrite_meaningful, duplicate_range, move_range,
    splice_with_itself, interleave, append, prepend, oversized_range, reencode, reencode_part, broken_utf8_in_string,
    control_byte_in_string, control_byte_anywhere, raw_quote, raw_backslash, backslash_before_close, not_finite,
    number_form,
    long_digits, wrong_type, wrong_type_everywhere, other_key, remove_key, change_digits, extreme_times, repeat_events,
    drop_event, shuffle_events, foreign_event, duplicate_key, nesting, whitespace, layout, commas, trailing_comma,
    list_root,
    close_wrong, metadata_elsewhere,
)  # fmt: skip
PACKED: tuple[Mutator, ...] = (gzip_whole, gzip_damaged, gzip_of_damaged, zstd_any, zip_any)


def several(data: bytes, rng: Random) -> bytes:
    """Two or three kinds of damage at once."""
    for mutate in rng.choices(PLAIN, k=rng.randint(2, 3)):
        try:
            data = mutate(data, rng) or data
        except (ValueError, IndexError, RecursionError):  # the damage so far leaves nothing that this kind needs
            continue
    return data


MUTATORS: tuple[Mutator, ...] = (*PLAIN, *PACKED, several)
