"""What a process tree listens on, and whether anything beyond this machine could reach it."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from workbench import guard


@dataclass(frozen=True, slots=True)
class Listening:
    """One listening socket: "127.0.0.1:8000", "[::1]:8000" or a Unix path."""

    pid: int
    address: str
    local: bool


def listening(root: int) -> list[Listening]:
    """Every TCP, UDP and Unix socket that `root` and the processes below it wait on.

    UDP has no listening state: a bound socket without a peer counts.
    """
    found = []
    for pid in (root, *guard.descendants(root)):
        try:
            connections = psutil.Process(pid).net_connections("all")
        except psutil.Error:
            continue
        for each in connections:
            if each.family == socket.AF_UNIX:
                if each.laddr:
                    found.append(Listening(pid, str(each.laddr), True))
            elif each.status == psutil.CONN_LISTEN or (
                each.type == socket.SOCK_DGRAM and not each.raddr and each.laddr
            ):
                host, port = each.laddr
                shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                found.append(Listening(pid, shown, ipaddress.ip_address(host).is_loopback))
    return found


def owner(port: int, root: int) -> int | None:
    """The process of the tree of `root` that listens on this TCP port."""
    for each in listening(root):
        if each.address.endswith(f":{port}"):
            return each.pid
    return None


def free_port(taken: Iterable[int] = ()) -> int:
    """A port of loopback that nobody listens on now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            if (port := probe.getsockname()[1]) not in taken:
                return port


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of loopback, asked in the way that servers do."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
