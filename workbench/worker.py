"""The worker process of a job: `python -m workbench.worker FOLDER`.

Events go to the job's file first and then to stdout, one line each; everything else that prints goes to stderr.
"""

import json
import os
import signal
import sys
import traceback
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path

import psutil

from workbench.errors import WorkbenchError, first_line, of_system
from workbench.events import Event, Failed, encode
from workbench.jobs import KINDS


def main(folder: Path) -> int:
    """Run the job in `folder`; 0 when it finished, 1 when it failed and said why."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stream = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # libraries print to stdout; the events have it for themselves
    os.nice(5)  # the window must stay responsive beside it
    with (folder / "events.jsonl").open("ab", buffering=0) as kept:

        def report(event: Event) -> None:
            line = encode(event)
            try:
                kept.write(f"{line}\n".encode())
            finally:  # a full disk must not keep the reason from who waits
                print(line, file=stream)

        def fail(failed: Failed) -> int:
            with suppress(OSError):
                report(failed)
            return 1

        try:
            (folder / "pid").write_text(f"{os.getpid()} {psutil.Process().create_time()}")
            job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
            module, _, function = KINDS[job["kind"]].partition(":")
            run = getattr(import_module(module), function)
            with closing(run(job["spec"], folder)) as events:
                for event in events:
                    report(event)
        except WorkbenchError as error:
            return fail(Failed(error.message, error.hint_template, error.values, traceback.format_exc()))
        except Exception as error:
            traceback.print_exc()
            if known := of_system(error):
                return fail(Failed(known.message, known.hint_template, details=traceback.format_exc()))
            return fail(
                Failed(
                    "The job stopped with an unexpected error: {error}.",
                    "The full text is in {log}.",
                    {"error": first_line(error), "log": str(folder / "worker.log")},
                    traceback.format_exc(),
                )
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
