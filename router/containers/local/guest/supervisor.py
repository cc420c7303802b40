"""The supervisor: does what the router asks for over a socket, its standard input.

    {"do": "execute", "code", "seconds", "characters"}   {"outcome", "logs", "images", "lost"}
    {"do": "stop"}                                       no answer; ends what is executed
    {"do": "list"}                                       {"files": [[path, bytes, mtime], ...]}
    {"do": "read", "path", "offset", "size"}             {"data": base64}
    {"do": "write", "path", "upload", "data", "last"}    {}
    {"do": "delete", "path"}                             {}

An answer with ``error`` says what was not done. ``outcome`` is ``completed``, ``error`` (the code
raised), ``timeout``, ``stopped``, ``memory``, ``files`` (too many) or ``ended``. ``lost`` says that
the interpreter had to be ended, with its variables. A file is written under the name of its
``upload`` first, piece by piece.

Client code has the same user id, but the sandbox's filter of system calls lets nobody signal or
trace this process. Between two calls no process but it and the interpreter is left, and the
interpreter is stopped.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Callable

from .channel import Channel, Gone
from .files import DATA, delete, found_files, read, remove_all, write
from .processes import InterpreterProcess, Logs, hide, memory_of, others, share_of_memory

__all__ = ["main"]

_PLACES = (DATA, "/tmp", "/dev/shm")
_MOST_IMAGES = 8
_WATCH_SECONDS = 0.05
_INTERRUPT_SECONDS = 1.0
_CLEAR_SECONDS = 5.0
_CLEAR_PAUSE = 0.002


class SandboxSupervisor:
    """``memory`` is in bytes, for all processes together; ``files`` is how many there may be."""

    def __init__(self, router: Channel, memory: int, files: int) -> None:
        self._router = router
        self._memory = memory
        self._files = files
        self._interpreter: InterpreterProcess | None = None
        self._answered = False

    def serve(self) -> None:
        """Do what is asked for until the router is gone; raises Gone."""
        work: dict[str, Callable[..., dict[str, Any]]] = {
            "execute": self._execute,
            "list": found_files,
            "read": read,
            "write": write,
            "delete": delete,
        }
        while True:
            asked = self._router.receive()
            name = asked.pop("do")
            if name == "stop":
                continue  # what was to be stopped is over
            try:
                answer = work[name](**asked)
            except (OSError, MemoryError) as error:
                answer = {"error": getattr(error, "strerror", None) or "out of memory"}
            self._router.send(answer)

    def _execute(self, code: str, seconds: float, characters: int) -> dict[str, Any]:
        interpreter = self._ready()
        self._answered = False
        logs = Logs(characters)
        interpreter.signal(signal.SIGCONT)
        images: list[str] = []
        try:
            interpreter.channel.send({"code": code})
            outcome, images = self._watch(interpreter, logs, time.monotonic() + seconds)
        except Gone:
            outcome = "ended"
        lost = not self._answered
        if lost:
            self._end(interpreter, logs)
        else:
            interpreter.signal(signal.SIGSTOP)
            _clear(interpreter.pid)  # what is left might print for ever
            while interpreter.read_output(logs):
                pass
        return {"outcome": outcome, "logs": logs.text(), "images": images, "lost": lost}

    def _ready(self) -> InterpreterProcess:
        until = time.monotonic() + _CLEAR_SECONDS
        while self._interpreter is None:
            try:
                self._interpreter = InterpreterProcess(DATA)
            except BlockingIOError:  # what was killed is not gone yet
                if time.monotonic() > until:
                    raise
                time.sleep(_WATCH_SECONDS)
        return self._interpreter

    def _watch(
        self, interpreter: InterpreterProcess, logs: Logs, deadline: float
    ) -> tuple[str, list[str]]:
        """How the code ended, or why it has to be; and its images."""
        interrupted = None
        while True:
            ends: list[Any] = [interpreter.channel, interpreter.output, self._router]
            ready, _, _ = select.select(ends, [], [], _WATCH_SECONDS)
            if interpreter.output in ready:
                interpreter.read_output(logs)
            if self._router in ready and self._router.receive()["do"] == "stop":
                return "stopped", []
            if interpreter.channel in ready:
                said = interpreter.channel.receive()
                self._answered = True
                if interrupted is not None:
                    return "timeout", []
                images = [one for one in said["images"] if isinstance(one, str)]
                return ("completed" if said["well"] else "error"), images[:_MOST_IMAGES]
            if self._too_much_memory():
                return "memory", []
            if self._too_many_files():
                return "files", []
            now = time.monotonic()
            if interrupted is not None and now > interrupted + _INTERRUPT_SECONDS:
                return "timeout", []
            if interrupted is None and now > deadline:
                # A traceback tells where the time went, and variables are kept.
                interpreter.signal(signal.SIGINT)
                interrupted = now

    def _end(self, interpreter: InterpreterProcess, logs: Logs) -> None:
        self._interpreter = None
        interpreter.signal(signal.SIGKILL)
        _clear(None)
        while interpreter.read_output(logs):
            pass
        interpreter.close()
        if self._too_many_files():
            for place in _PLACES:
                remove_all(place)

    def _too_much_memory(self) -> bool:
        pids = others()
        # Forked processes have pages in common, which the first sum counts for each of them.
        return sum(map(memory_of, pids)) > self._memory < sum(map(share_of_memory, pids))

    def _too_many_files(self) -> bool:
        told = map(os.statvfs, _PLACES)
        return sum(one.f_files - one.f_ffree for one in told) > self._files


def _clear(kept: int | None) -> None:
    """Kill every other process but the one to be kept. Where they are faster than that, all of the
    sandbox ends, which is done by ending this process: raises Gone.
    """
    until = time.monotonic() + _CLEAR_SECONDS
    while left := [pid for pid in others() if pid != kept]:
        if time.monotonic() > until:
            raise Gone
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(_CLEAR_PAUSE)


def main() -> None:
    """Serve the socket on the standard input, with the limits of the command line: bytes of memory,
    processes, files.
    """
    memory, processes, files = map(int, sys.argv[1:])
    router = Channel(socket.socket(fileno=os.dup(0)))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    hide(True)
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    router.send({"ready": sys.version.split()[0], "pid": os.getpid()})
    try:
        SandboxSupervisor(router, memory, files).serve()
    except Gone:
        pass
