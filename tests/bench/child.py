"""Runs a command pinned to one core and bound to its parent's life (Linux).

    python child.py CORE PARENT_PID COMMAND...

The kernel kills the command when the parent ends, even if the parent was killed outright.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(core: int, parent: int, command: list[str]) -> None:
    """Become ``command``. OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the parent has ended already")
    os.sched_setaffinity(0, {core})
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
