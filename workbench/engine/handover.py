"""The commands of prefill and decode apart: engines with the connector that hands their KV cache over, and the router.

The router's flags appear here and nowhere else.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from workbench.engine import command, drafts
from workbench.engine.command import HOST, SENT_KEY, Command
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.engine.separation import Leg, Separation, role_of
from workbench.errors import WorkbenchError

CONNECTOR = "--kv-transfer-config"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
FRONT = "front"  # beside the names of the legs
SHOWN_PORTS = 8000, 5600  # of the front and of the first side channel, in a command that is only shown
HEALTH_S = 1


def packages(facts: EngineFacts) -> tuple[str, ...]:
    """What must be installed beside vLLM; NIXL's build is for one version of CUDA, and its own needs name two."""
    return "nixl==1.5.1", "nixl-cu12==1.5.1" if facts.cpu else "nixl-cu13==1.5.1", "vllm-router==0.1.17"


def missing(facts: EngineFacts) -> WorkbenchError | None:
    """What the engine's interpreter lacks for prefill and decode apart."""
    if CONNECTOR not in facts.flags:
        return WorkbenchError(
            "vLLM {version} does not know {flag}.", "Leave this choice out, or choose another engine interpreter.",
            version=facts.version, flag=CONNECTOR,
        )  # fmt: skip
    if facts.nixl and facts.router:
        return None
    pip = f"{facts.python} -m pip install"
    return WorkbenchError(
        "Prefill and decode apart needs NIXL and the vLLM router, which are not installed in {python}.",
        "Install them there: {command}", python=facts.python,
        command=f"{pip} --no-deps {' '.join(packages(facts))} && {pip} orjson setproctitle",
    )  # fmt: skip


def connected(profile: Profile, role: str, facts: EngineFacts) -> Profile:
    """The profile of an engine that hands its KV cache over, "prefill", or takes others', "decode"."""
    config = {
        "kv_connector": "NixlConnector", "kv_role": ROLES[role],
        # A cache that does not arrive is an error at once. To compute the prompt again would hide it as a slow answer,
        # and slow all others on the engine that is there to keep them fast.
        "kv_load_failure_policy": "fail",
    }  # fmt: skip
    if facts.cpu:
        config["kv_buffer_device"] = "cpu"
    return replace(profile, extra=(*profile.extra, CONNECTOR, json.dumps(config)))


def environment(leg: Leg, side_port: int, facts: EngineFacts) -> dict[str, str]:
    """What a leg of ours gets beside its own environment; everything that hands over stays on this machine."""
    env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": HOST, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_port), "UCX_NET_DEVICES": "lo"}
    if facts.cpu:
        env["UCX_TLS"] = "tcp,sm,self"
    if leg.devices:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, leg.devices))
    return env


def router(urls: Mapping[str, str], port: int, figures_port: int, key: str, python: str) -> Command:
    """The command of the front before the engines at `urls`, by the names of the legs."""
    by_role = {role: [url for name, url in urls.items() if role_of(name) == role] for role in ("prefill", "decode")}
    argv = [python, "-m", "vllm_router.launch_router", "--vllm-pd-disaggregation", "--kv-connector", "nixl"]
    for role, addresses in by_role.items():
        for url in addresses:
            argv += [f"--{role}", url]
    argv += [
        "--host", HOST, "--port", str(port), "--prometheus-host", HOST, "--prometheus-port", str(figures_port),
        # To choose by the cache, it first asks the engines for the rendered prompt, within the time to the first token.
        "--prefill-policy", "cache_aware" if len(by_role["prefill"]) > 1 else "round_robin",
        "--balance-abs-threshold", "0", "--balance-rel-threshold", "1",  # but an idle engine goes before the cache
        "--decode-policy", "round_robin",
        # A busy engine can miss a check, after which nobody would be let through; a dead one is seen by us.
        "--health-check-interval-secs", str(HEALTH_S), "--health-failure-threshold", "5",
        "--health-success-threshold", "1",
        "--worker-startup-check-interval", str(HEALTH_S),
        # What an engine refuses is the client's to know, at once; and one bad request must not close an engine to all.
        "--disable-retries", "--disable-circuit-breaker",
        # It asks for no key and would let every web page that the user opens read its answers.
        "--cors-allowed-origins", f"http://{HOST}:{port}",
        "--log-level", "warning",
    ]  # fmt: skip
    return Command(tuple(argv), {SENT_KEY: key, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **command.no_proxy()})


def shown(separation: Separation, facts: EngineFacts) -> dict[str, Command]:
    """What a start would run, by leg and then "front", with the ports that one could choose by hand."""
    if error := missing(facts):
        raise error
    first, side = SHOWN_PORTS
    front = separation.port or first
    urls, commands = {}, {}
    for number, (name, leg) in enumerate(separation.legs().items(), 1):
        urls[name] = leg.url or f"http://{HOST}:{front + number}"
        if leg.profile:
            profile = connected(drafts.settle(leg.profile, facts), role_of(name), facts)
            built = command.build(profile, front + number, separation.key, facts)
            commands[name] = replace(built, env={**built.env, **environment(leg, side + number - 1, facts)})
    commands[FRONT] = router(urls, front, 29000, separation.key, facts.python)
    return commands
