"""OpenTofu or Terraform with the provider ``restapi``, run as people run them; no registry is asked."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.processes import ROOT
from tests.support.tools import ToolMissingError

MODULE: Final = ROOT / "deploy" / "terraform" / "confplane"
EXAMPLE: Final = ROOT / "deploy" / "terraform" / "example"
_RUN_S: Final = 300
_PROVIDER_VERSION: Final = "3.0.0"
_REGISTRIES: Final = {"tofu": "registry.opentofu.org", "terraform": "registry.terraform.io"}


def program() -> Path:
    """Find OpenTofu or Terraform on PATH.

    Raises:
        ToolMissingError: There is neither.
    """
    found = next(filter(None, map(shutil.which, _REGISTRIES)), None)
    if found is None:
        raise ToolMissingError("Neither OpenTofu (tofu) nor Terraform is on PATH")
    return Path(found)


def provider() -> Path:
    """Find version 3 of the provider on PATH: no package that the tests may install has it.

    Raises:
        ToolMissingError: It is not there.
    """
    found = shutil.which("terraform-provider-restapi")
    if found is None:
        raise ToolMissingError("Version 3 of terraform-provider-restapi is not on PATH")
    return Path(found)


class Workspace:
    """A folder with a configuration and its state.

    Args:
        parent: The folder that has the module, the provider, and this workspace.
        name: The folder's name.
        tool: OpenTofu or Terraform.
        restapi: The provider's program.
        url: The service.
        token: The token of requests.
    """

    def __init__(self, parent: Path, name: str, *, tool: Path, restapi: Path, url: str, token: str) -> None:
        self.directory = parent / name
        self._tool = tool
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        host = _REGISTRIES[tool.name]
        place = parent / "mirror" / host / "mastercard" / "restapi" / _PROVIDER_VERSION / f"linux_{machine}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(restapi, place / f"terraform-provider-restapi_v{_PROVIDER_VERSION}")
        config = parent / "tofu.rc"
        config.write_text(
            f'provider_installation {{\n  filesystem_mirror {{\n    path = "{parent / "mirror"}"\n  }}\n}}\n'
        )
        self._environment = {
            **os.environ,
            "TF_CLI_CONFIG_FILE": str(config),
            "TF_VAR_url": url,
            "REST_API_BEARER": token,
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
        }

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a subcommand, and return its standard output; the exit code must be ``code``."""
        done = subprocess.run(
            [str(self._tool), arguments[0], "-no-color", *arguments[1:]],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def apply(self) -> str:
        """Apply without a question."""
        return self.run("apply", "-auto-approve", "-input=false")

    def changes(self, *, expected: bool) -> str:
        """Plan, and expect changes or none."""
        return self.run("plan", "-detailed-exitcode", "-input=false", code=2 if expected else 0)
