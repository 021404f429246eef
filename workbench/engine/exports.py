"""An engine's command in other forms: a service of systemd, a compose file. The arguments are those of the command."""

import re
from collections.abc import Callable

import yaml

from workbench.engine.command import KEY, Command
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError

IMAGES = {False: "vllm/vllm-openai", True: "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo"}  # by facts.cpu
# What is only right in this interpreter: our plugin, and libraries that lie beside it.
OF_THIS_MACHINE = ("LATHE_ENGINE", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED")
FIRST_ARGUMENT = 3  # after: interpreter -m module


def unit(profile: Profile, command: Command, facts: EngineFacts) -> str:
    """A user's service, for ~/.config/systemd/user. The key stands in a file of its own, which only the user reads."""
    lines = [
        "[Unit]",
        f"Description=vLLM, {_percent(profile.served_name)}",
        "After=network.target",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(_word(part) for part in command.argv)}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in command.env.items() if name != KEY),
        f"# One line: {KEY}=…  Make it with: install -m 600 /dev/null FILE",
        f"EnvironmentFile=%E/lathe/{_percent(re.sub(r'[^A-Za-z0-9._-]', '-', profile.served_name))}.env",
        "PrivateTmp=yes",
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStopSec=30",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    if wrong := next((line for line in lines if "\n" in line or "\r" in line), None):
        raise WorkbenchError(
            "A unit of systemd cannot hold a line break: {text}", "Give the folder another name.", text=wrong[:60]
        )
    return "\n".join(lines) + "\n"


def compose(profile: Profile, command: Command, facts: EngineFacts) -> str:
    """A compose file of one service. The host's network and paths keep every argument as it is on this machine."""
    folders = [profile.model, *(adapter.folder for adapter in profile.adapters)]
    if profile.speculation and profile.speculation.draft:
        folders.append(profile.speculation.draft)
    if profile.chat_template:
        folders.append(profile.chat_template)
    env = {name: value for name, value in command.env.items() if name not in (KEY, *OF_THIS_MACHINE)}
    service = {
        "image": f"{IMAGES[facts.cpu]}:v{facts.version.partition('+')[0]}",
        "entrypoint": ["python3", *command.argv[1:FIRST_ARGUMENT]],
        "command": [_dollar(part) for part in command.argv[FIRST_ARGUMENT:]],
        "environment": {
            KEY: "${LATHE_KEY:?the key that requests must carry}",
            **{name: _dollar(value) for name, value in env.items()},
        },
        "network_mode": "host",
        "ipc": "host",
        "volumes": [
            {"type": "bind", "source": _dollar(folder), "target": _dollar(folder), "read_only": True}
            for folder in sorted({str(each.absolute()) for each in folders})
        ],
        "restart": "unless-stopped",
    }
    if not facts.cpu:
        device = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return yaml.safe_dump({"services": {"vllm": service}}, sort_keys=False, allow_unicode=True, width=1000)


FORMS: dict[str, Callable[[Profile, Command, EngineFacts], str]] = {"systemd": unit, "compose": compose}


def _word(part: str) -> str:
    """One argument as systemd reads it: % and $ are doubled, and quoted where more than letters stand in it."""
    escaped = _percent(part).replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@%+=:,./$-]+", escaped, re.ASCII) else _quoted(escaped, escape_percent=False)


def _quoted(text: str, escape_percent: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_percent(text) if escape_percent else text}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _dollar(text: str) -> str:
    """Compose puts variables in where a single $ stands."""
    return text.replace("$", "$$")
