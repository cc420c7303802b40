"""What becomes a sandbox: it takes the limits of one upon itself, and is bubblewrap then.

It is run by its path and imports nothing of the router. The user id is changed here, since a
process with threads must run no Python between fork and exec.

    python launch.py JSON
    {"groups": [file, ...], "user": id or null, "limits": {name: value}, "command": [...]}
"""

from __future__ import annotations

import json
import os
import resource
import sys

_NICE = 10
_OOM_SCORE = "500"


def main() -> None:
    order = json.loads(sys.argv[1])
    for path in order["groups"]:
        with open(path, "w") as file:
            file.write("0")
    os.nice(_NICE)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)  # where memory runs out sandboxes go first
    for name, value in order["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if order["user"] is not None:
        os.setgroups([])
        os.setresgid(order["user"], order["user"], order["user"])
        os.setresuid(order["user"], order["user"], order["user"])
    os.umask(0o022)
    os.execv(order["command"][0], order["command"])


if __name__ == "__main__":
    main()
