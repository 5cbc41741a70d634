"""Reads `meta-records` of a layer, by docs/layer-format.md alone."""
import os
import struct
import zlib

HEAD = struct.Struct("<IIQQqqQQIIIcBBB32s")
FIELDS = ("size", "mtime_ns", "ctime_ns", "inode", "device", "mode", "uid", "gid")


def records(layer):
    """{"base": {path: fields}, "read": …}; the first record of a path stays, a torn one ends the log."""
    out = {"base": {}, "read": {}}
    with open(os.path.join(layer, "meta-records"), "rb") as file:
        text = file.read()
    assert text[:16] == b"cofferdam-log-1\n", text[:16]
    at = 16
    while at + HEAD.size <= len(text):
        path_size, check, content_size, *numbers, what, kind, flags, _, digest = HEAD.unpack_from(text, at)
        content_at = at + HEAD.size + path_size
        if content_at + content_size > len(text) or zlib.crc32(text[at + 8:content_at], path_size) != check:
            break
        row = dict(zip(FIELDS, numbers), kind=kind, state=flags & 1, stored=flags >> 1 & 1, racy=flags >> 2 & 1,
                   sha256=digest if flags & 8 else None, content=text[content_at:content_at + content_size])
        table = out[{b"B": "base", b"R": "read"}[what]]
        table.setdefault(os.fsdecode(text[at + HEAD.size:content_at]), row)
        at = content_at + content_size
    return out


def bases(layer):
    return records(layer)["base"]
