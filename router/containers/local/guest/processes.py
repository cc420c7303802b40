"""The processes of the sandbox, and the one that is the interpreter."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
from typing import Any

from .channel import Channel
from .interpreter import execute_all

__all__ = ["InterpreterProcess", "Logs", "hide", "memory_of", "others", "share_of_memory"]

_PIECE = 64 * 1024
_MOST_DESCRIPTORS = 64
_SET_DUMPABLE = 4


class Logs:
    """The beginning and the end of an output: ``most`` bytes of it."""

    def __init__(self, most: int) -> None:
        self._half = max(most // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def add(self, data: bytes) -> None:
        """Append this."""
        room = max(self._half - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        over = len(self._tail) - self._half
        if over > 0:
            del self._tail[:over]
            self._cut += over

    def text(self) -> str:
        """What is kept, and how much is not."""
        middle = b"\n[... %d bytes left out ...]\n" % self._cut if self._cut else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace")


class InterpreterProcess:
    """The process that executes code: a fork of this one. ``output`` is what it prints to,
    ``channel`` what it is given code by. Raises BlockingIOError where no process can be started.
    """

    def __init__(self, folder: str) -> None:
        ours, theirs = socket.socketpair()
        self.output, written = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            for end in (ours, theirs):
                end.close()
            os.close(self.output)
            os.close(written)
            raise
        if self.pid == 0:
            try:
                self._become(Channel(theirs), written, folder)
            finally:
                os._exit(1)
        theirs.close()
        os.close(written)
        os.set_blocking(self.output, False)
        self.channel = Channel(ours)

    def _become(self, channel: Channel, written: int, folder: str) -> None:
        os.setsid()
        hide(False)
        try:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write("900")  # where memory runs out it goes first
        except OSError:
            pass
        os.dup2(written, 1)
        os.dup2(written, 2)
        # Not the router's socket: this is where the client's code begins.
        for number in set(range(3, _MOST_DESCRIPTORS)) - {channel.fileno()}:
            try:
                os.close(number)
            except OSError:
                pass
        execute_all(channel, folder)

    def signal(self, number: int) -> None:
        """Send it a signal; one that has ended is fine."""
        try:
            os.kill(self.pid, number)
        except OSError:
            pass

    def close(self) -> None:
        """End it for good."""
        self.signal(signal.SIGKILL)
        try:
            os.waitpid(self.pid, 0)
        except OSError:
            pass
        self.channel.end.close()
        os.close(self.output)

    def read_output(self, logs: Logs) -> bool:
        """Take what there is; whether there was anything."""
        try:
            data = os.read(self.output, _PIECE)
        except OSError:
            return False
        logs.add(data)
        return bool(data)


def hide(hidden: bool) -> None:
    """Whether others of the same user may look into this process's memory and files."""
    library: Any = ctypes.CDLL(None)
    library.prctl(_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0)


def others() -> list[int]:
    """The ids of all processes but the first one of the sandbox and this one."""
    mine = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid not in (1, mine) and not _is_over(pid)]


def _is_over(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as told:
            return told.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def memory_of(pid: int) -> int:
    """Bytes of memory but for those of files, in whole."""
    try:
        with open(f"/proc/{pid}/statm") as told:
            _, resident, shared = told.read().split()[:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


def share_of_memory(pid: int) -> int:
    """The same, of pages in common a share only; in whole for a process that hides itself."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as told:
            for line in told:
                if line.startswith("Pss_Anon:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return memory_of(pid)
