"""A server with OpenAI's interface: where it is, what it asks for, and a client that reaches it."""

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from workbench.errors import WorkbenchError

# A long prompt on a CPU may take minutes before its first token; the user can stop any time.
TIMEOUT = httpx.Timeout(10, connect=5, read=900)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: `url` with or without /v1, the key it asks for ("" for none), the model's served name.

    `vllm` is False for other servers: those refuse the fields that only vLLM knows. Raises WorkbenchError on a key that
    no request can carry, which what sends it would quote in its error.
    """

    url: str
    key: str = field(default="", repr=False)
    model: str = ""
    vllm: bool = True

    def __post_init__(self) -> None:
        key = self.key.strip()  # it may have been copied with the end of its line
        if not (key.isascii() and key.isprintable()):
            raise WorkbenchError(
                "The key has characters that no key can have.", "Copy it once more: one line, without special letters."
            )
        object.__setattr__(self, "key", key)

    @property
    def root(self) -> str:
        """The address above /v1."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine: then no proxy may come between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def open(self, timeout: httpx.Timeout | float = TIMEOUT, keep: bool = True) -> httpx.AsyncClient:
        """A client for this server. Loopback goes direct whatever the environment says.

        Without `keep` each request has a connection of its own. Raises WorkbenchError on a proxy that cannot be used.
        """
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            return httpx.AsyncClient(
                base_url=self.root,
                headers=headers,
                timeout=timeout,
                limits=httpx.Limits(max_keepalive_connections=None if keep else 0),
                trust_env=not self.is_local,
                verify=not self.root.startswith("http://"),  # without TLS, reading the certificates only takes time
            )
        except (ImportError, ValueError) as error:  # a SOCKS proxy, or a kind that is unknown
            raise WorkbenchError(
                "The proxy of this environment cannot be used: {reason}",
                "Name an HTTP proxy in HTTP_PROXY and HTTPS_PROXY, or add the server to NO_PROXY.", reason=str(error),
            ) from error  # fmt: skip
