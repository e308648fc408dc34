"""Files on any file system that Hadoop supports, accessed through Spark's Java, because PySpark has no calls for it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = "file"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_RENAMING: Final = frozenset({"hdfs", "viewfs"})
"""File systems that show a file while it is written, and replace a file atomically by a rename."""


def local_path(path: str) -> Path | None:
    """Return a path as one of this machine, or None if only Spark can tell which file system has it."""
    if "HADOOP_CONF_DIR" in os.environ:  # it names the file system of paths without a scheme
        return None
    if path.startswith(f"{_LOCAL}:"):
        return Path("/" + path.removeprefix(f"{_LOCAL}:").lstrip("/"))
    return None if _SCHEME.match(path) else Path(path)


def check_writable(path: str) -> None:
    """Check that files can be written below a path, which need not exist, as far as that is known without Spark.

    Raises:
        ValueError: The path is empty, lies below a file, or can't be written to.
    """
    if not path.strip():
        raise ValueError("The path of the output is empty")
    local = local_path(path)
    if local is None:
        return
    at = next(each for each in (local.absolute(), *local.absolute().parents) if os.path.lexists(each))
    if not at.is_dir():
        raise ValueError(f"{path} can't be written to: {at} is not a directory")
    if not os.access(at, os.W_OK | os.X_OK):
        raise ValueError(f"{path} can't be written to: no permission in {at}")


class Files:
    """The file system of a path.

    Args:
        spark: The session.
        path: Any path of the file system.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - see the module
        self._configuration: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001 - see the module
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._system = self._path(path).getFileSystem(self._configuration)
        self._scheme = str(self._system.getUri().getScheme())

    def exists(self, path: str) -> bool:
        """Return True if there is a file or a directory."""
        return bool(self._system.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is no directory."""
        try:
            found = self._system.listStatus(self._path(path))
        except Py4JJavaError as error:
            if _is_absent(error):
                return []
            raise
        return sorted(status.getPath().getName() for status in found)

    def rename(self, path: str, to: str) -> None:
        """Move a directory; a move by copies that was interrupted is completed.

        Raises:
            OSError: The file system refused the operation.
        """
        if self.exists(to):
            # All files belong to one directory, so each may be copied again.
            for name in self.names(path):
                self.delete(f"{to}/{name}")
                self._rename(f"{path}/{name}", f"{to}/{name}")
        else:
            self._rename(path, to)

    def _rename(self, path: str, to: str) -> None:
        self._system.mkdirs(self._path(to).getParent())
        if not self._system.rename(self._path(path), self._path(to)):
            raise OSError(f"{path} was not renamed to {to}")

    def touch(self, path: str) -> None:
        """Make an empty file."""
        self._write(path, "")

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        self._system.delete(self._path(path), True)  # noqa: FBT003 - Java's: recursive

    def delete_empty(self, path: str) -> None:
        """Remove a directory if it is empty."""
        if not self.names(path):
            self.delete(path)

    def read(self, path: str) -> str | None:
        """Return the text of a small file, or None if there is no file."""
        try:
            stream = self._system.open(self._path(path))
        except Py4JJavaError as error:
            if _is_absent(error):
                return None
            raise
        try:
            content: bytes = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(content).decode()

    def replace(self, path: str, text: str) -> None:
        """Write a small file, so that a reader sees either the complete old text or the complete new text."""
        if self._scheme == _LOCAL:
            self._replace_local(Path(self._path(path).toUri().getPath()), text)
        elif self._scheme in _RENAMING:
            self._replace_by_rename(path, text)
        else:
            # Object stores show a file once it is complete.
            self._write(path, text)

    def update(self, path: str, text: str) -> None:
        """Replace a small file, unless it has this text."""
        if self.read(path) != text:
            self.replace(path, text)

    def _replace_local(self, path: Path, text: str) -> None:
        # Hadoop's local file system removes the old file first, and keeps the checksums of the old file.
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(_beside(path.name))
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)  # noqa: PTH105 - named for what it does

    def _replace_by_rename(self, path: str, text: str) -> None:
        to = self._path(path)
        beside = self._path(to.getParent(), _beside(to.getName()))
        self._write(beside.toString(), text)
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        options[0] = rename.OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(to.toUri(), self._configuration)
        context.rename(beside, to, options)

    def _write(self, path: str, text: str) -> None:
        stream = self._system.create(self._path(path), True)  # noqa: FBT003 - Java's: overwrite
        try:
            stream.write(text.encode())
        finally:
            stream.close()


def _beside(name: str) -> str:
    return f"_{name}.{uuid4().hex}"


def _is_absent(error: Py4JJavaError) -> bool:
    return "FileNotFoundException" in str(error.java_exception.getClass().getName())
