"""The settings of the code interpreter: what runs code, and the limits of its containers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from router.settings.section import Section
from router.settings.values import (
    BaseUrl,
    Count,
    CountOrZero,
    Fault,
    KeyName,
    Positive,
    Seconds,
    Secret,
    Text,
    Usd,
    fail_at,
)

__all__ = [
    "MEMORY_BYTES",
    "CodeInterpreterSettings",
    "JupyterGatewaySettings",
    "JupyterRunnerSettings",
    "LocalRunnerSettings",
    "MemoryLimit",
]

MemoryLimit = Literal["1g", "4g", "16g", "64g"]

MEMORY_BYTES: Final = {"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
"""What the names of the API for a container's memory stand for."""


class LocalRunnerSettings(Section):
    """Sandboxes on this machine, made by bubblewrap."""

    bubblewrap: Text = "bwrap"
    """The program, by its name or its path."""
    python: Text | None = None
    """The Python that runs code, with the packages that it is to have: that of a virtual
    environment, say. Everybody must be able to read it. Default: one of the machine's.
    """
    max_containers: Count = 16
    """The most sandboxes of this router at once."""
    disk_mb: Count = 256
    """The most that a container's files may take, in MiB. They are kept in memory."""
    processes: Annotated[Count, Field(ge=4, le=4096)] = 64
    """The most processes and threads of one container."""
    cgroup: Text | None = None
    """A control group below which each sandbox has one of its own, such as `pointsman`: then the
    kernel limits the memory of all its processes together.
    """
    first_uid: Annotated[int, Field(ge=1000, le=2_147_000_000)] = 1_900_000_000
    """Where the router is root: sandboxes have user ids of the 65 536 from this one on."""


class JupyterGatewaySettings(Section):
    """A Jupyter server, or an Enterprise Gateway. A kernel can do whatever its server's user can:
    what keeps keys apart is that each has a gateway of its own.
    """

    url: BaseUrl
    """Its base URL, such as `http://127.0.0.1:8888`."""
    token: Secret | None = None
    """The token that it is sent."""
    kernel: Text = "python3"
    """The name of its kernel for Python."""
    keys: tuple[KeyName, ...] = ()
    """The key whose code it runs (`default` where no keys are configured). Several, or none for
    all of them, need `shared`.
    """
    shared: bool = False
    """Whether code of different keys may run at this gateway, where it can read one another's
    files and memory.
    """


class JupyterRunnerSettings(Section):
    """Kernels at Jupyter servers or Enterprise Gateways."""

    gateways: Annotated[tuple[JupyterGatewaySettings, ...], Field(min_length=1)]
    """The gateways, one for each key."""
    timeout: Seconds = 30.0
    """The longest that starting a kernel may take, or a request to the gateway."""

    @model_validator(mode="after")
    def _each_key_has_its_own(self) -> JupyterRunnerSettings:
        faults: list[Fault] = []
        seen: set[str] = set()
        urls: set[str] = set()
        for index, gateway in enumerate(self.gateways):
            if not gateway.shared and len(gateway.keys) != 1:
                message = "must be one key, since Jupyter keeps keys apart in no other way; or "
                faults.append((("gateways", index, "keys"), f"{message}accept that with shared"))
            if not gateway.shared and gateway.url in urls:
                faults.append((("gateways", index, "url"), "is that of another gateway"))
            if repeated := seen.intersection(gateway.keys or ("",)):
                what = "names a key that has a gateway" if "" not in repeated else "is empty twice"
                faults.append((("gateways", index, "keys"), what))
            seen.update(gateway.keys or ("",))
            urls.add(gateway.url)
        fail_at("Jupyter", faults)
        return self


class CodeInterpreterSettings(Section):
    """Containers in which the router runs the code of models, by one of two runners."""

    local: LocalRunnerSettings | None = None
    """Sandboxes on this machine."""
    jupyter: JupyterRunnerSettings | None = None
    """Or kernels of Jupyter servers."""
    memory: MemoryLimit = "1g"
    """The memory of a container that does not say."""
    max_memory: MemoryLimit = "1g"
    """The most memory that a container may ask for."""
    idle_minutes: Annotated[Count, Field(le=20)] = 20
    """A container that is not used for so long expires; its own `expires_after` may be shorter."""
    max_per_key: CountOrZero = 8
    """The most containers of one key at once; 0 is no limit."""
    max_file_mb: Positive = 64.0
    """The largest file that is put into a container, in MiB."""
    output_characters: Annotated[Count, Field(ge=200, le=1_000_000)] = 24_000
    """The most characters of a call's output: the middle of a longer one is left out."""
    images: bool = True
    """Whether images that code makes are shown in the outputs of its call, as data URLs."""
    price_per_call: Usd = 0.0
    """What a call costs in US dollars; it counts in budgets."""

    @model_validator(mode="after")
    def _has_one_runner(self) -> CodeInterpreterSettings:
        faults: list[Fault] = []
        if (self.local is None) == (self.jupyter is None):
            message = "is required, or else jupyter" if self.local is None else "excludes jupyter"
            faults.append((("local",), message))
        if MEMORY_BYTES[self.memory] > MEMORY_BYTES[self.max_memory]:
            faults.append((("memory",), "is more than max_memory"))
        fail_at("CodeInterpreter", faults)
        return self
