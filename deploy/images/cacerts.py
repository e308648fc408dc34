"""Removes the dates from Java's trusted certificates, so that two builds of an image are equal: ``cacerts.py FILE``.

Debian's package writes the time of its installation into each entry. The file is a key store of the type JKS: a
header, entries, and a digest.
"""  # noqa: INP001 - a script

import hashlib
import pathlib
import struct
import sys

PASSWORD = "changeit"  # noqa: S105 - Debian's
CERTIFICATE = 2
path = pathlib.Path(sys.argv[1])
data = bytearray(path.read_bytes()[:-20])
magic, version, entries = struct.unpack_from(">III", data)
if (magic, version) != (0xFEEDFEED, 2):
    sys.exit(f"{path} is not of the type JKS")
offset = 12
for _ in range(entries):
    tag, length = struct.unpack_from(">IH", data, offset)
    if tag != CERTIFICATE:
        sys.exit(f"{path} has an entry that is not a certificate")
    offset += 6 + length
    data[offset : offset + 8] = bytes(8)
    (length,) = struct.unpack_from(">H", data, offset + 8)
    offset += 10 + length
    (length,) = struct.unpack_from(">I", data, offset)
    offset += 4 + length
digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data)  # noqa: S324 - of the format
path.write_bytes(data + digest.digest())
