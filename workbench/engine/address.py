"""What people paste as a server's address, as the address above /v1."""

import re
from urllib.parse import urlsplit, urlunsplit

from workbench.engine.endpoint import Endpoint
from workbench.errors import WorkbenchError

# Ends of addresses that documentation shows; the interface is above them.
_ENDS = re.compile(r"(/v1)?/(chat/completions|completions|models|health|metrics|docs)$|/v1$")


def read(text: str) -> str:
    """The address. Raises WorkbenchError on what is none, and on one with a password in it."""
    text = text.strip()
    if "://" not in text:
        bare = urlsplit(f"//{text}")
        # What has a port or is this machine is somebody's own server, and those have no certificate.
        near = ":" in bare.netloc or Endpoint(f"http://{text}").is_local
        text = f"{'http' if near else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or re.search(r"\s", text):
        raise WorkbenchError(
            "{url} is no address of a server.", "Write it like http://machine:8000.", url=text[:100]
        )  # fmt: skip
    if parts.username or parts.password:
        raise WorkbenchError(
            "A key does not belong into the address.", "Leave it out there and give it as the key."
        )  # fmt: skip
    path = _ENDS.sub("", parts.path.rstrip("/")).rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
