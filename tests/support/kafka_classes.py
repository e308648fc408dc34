"""Archives of the Java classes that Kafka's programs load, with which they start in half of the processor time.

There is an archive for each class path: of a broker, of the formatter of its logs, of the AdminClient, and of the
compiler of programs that run from their source. ``tests.support.tools`` makes them once per checkout;
``python -m tests.support.kafka_classes CLASS_PATH ARCHIVE`` runs what loads the classes, and writes an archive.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confplane.devstack.errors import DevStackError
from confplane.devstack.java import find_java
from confplane.rollups import class_archive
from tests.support.java import java_environment
from tests.support.signals import start_children_with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DIRECTORY: Final = Path(__file__).resolve().parents[2] / ".tools"
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_DUMP_S: Final = 600


@functools.cache
def name(class_path: str) -> str:
    """Return the file name of the archive for a class path; Java compares the archive with the jars for itself."""
    try:
        java = find_java().resolve()
    except DevStackError:  # the code that needs Java reports its absence
        return "kafka.jsa"
    of = f"{java}{os.pathsep}{java.stat().st_mtime_ns}{os.pathsep}{class_path}"
    return f"kafka-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"


def options(class_path: str, most: str = "256m") -> list[str]:
    """Return Java's options for a fast start with little memory; without an archive, Java loads from the jars.

    Args:
        class_path: Exactly that of the program.
        most: The maximum size of its heap.
    """
    archive = DIRECTORY / name(class_path)
    return [f"-Xmx{most}", *_QUICK, *(class_archive.options_to_read(archive) if archive.is_file() else ())]


def listed(files: Iterable[Path]) -> list[str]:
    """Return the lines of several lists of loaded classes, each once."""
    # A class whose loader is not one of the JVM's own has the number of its loader after its name.
    lines = (line for file in files for line in file.read_text().splitlines() if not line.startswith("#"))
    return list(dict.fromkeys(line for line in lines if line.startswith("@") or " " not in line))


@contextlib.contextmanager
def _bootstrap(directory: Path, class_path: str, java: Sequence[str]) -> Iterator[str]:
    """Run a broker, in ZooKeeper mode if its class path has ZooKeeper; the value is its address."""
    from confplane.devstack.zookeeper import ZooKeeper  # noqa: PLC0415
    from tests.support.broker import Broker  # noqa: PLC0415
    from tests.support.kraft import kraft_cluster  # noqa: PLC0415

    if "zookeeper" not in class_path:
        with kraft_cluster(directory / "kraft", class_path, logins=True, authorizer=True, java=java) as cluster:
            yield cluster.bootstrap[0]
        return
    with ZooKeeper(directory / "zookeeper", durable=False) as zookeeper:
        broker = Broker(directory / "broker", class_path=class_path, connect=f"{zookeeper.hosts}/kafka")
        broker.java_options = java
        with broker:
            yield broker.bootstrap


def main(class_path: str, archive: str) -> None:
    """Run a broker and a client of it, and write the archive."""
    from tests.interop.admin import Admin  # noqa: PLC0415 - Kafka's programs take archives from here

    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        listing = ("-Xmx384m", *_QUICK, f"-XX:DumpLoadedClassList={directory / '%p.classes'}")
        with (
            _bootstrap(directory, class_path, listing) as bootstrap,
            Admin(directory, class_path=class_path, bootstrap=bootstrap, java=listing) as admin,
        ):
            topic = "t"
            admin.create_topics(topic)
            admin.alter_configs("TOPIC", topic, [("retention.ms", "SET", "86400000")])
            admin.alter_quotas(({"user": "u"}, [("producer_byte_rate", 1e6)]))
            admin.describe_quotas()
        classes = directory / "classes"
        classes.write_text("\n".join(listed(sorted(directory.glob("*.classes")))))
        sharing = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}"]
        done = subprocess.run(
            [str(find_java()), *sharing, "-Xlog:cds*=off", "-cp", class_path],
            env=java_environment(), check=False, capture_output=True, text=True, timeout=_DUMP_S,
        )  # fmt: skip
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)


if __name__ == "__main__":
    start_children_with_defaults()
    main(*sys.argv[1:])
