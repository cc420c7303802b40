"""What code in a sandbox tries in vain. Each of these is listed in docs/code-interpreter.md."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_asyncio

from router.containers.local.runner import LocalRunner
from router.containers.runner import CodeOutcome, ContainerGone, ContainerRef, RunnerFailed
from router.settings.code_interpreter import LocalRunnerSettings
from tests.support.sandboxes import needs_sandboxes
from tests.support.waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    needs_sandboxes,
]

MIB = 1024 * 1024
LIBRARY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *given):
    result = getattr(libc, name)(*given)
    return "refused" if result < 0 else result
"""

ALIVE = """
import os
states = [open(f"/proc/{p}/stat").read().rpartition(")")[2].split()[0]
          for p in os.listdir("/proc") if p.isdigit()]
len([state for state in states if state != "Z"])
"""


class Sandboxed:
    """One container of a runner."""

    def __init__(self, runner: LocalRunner, ref: ContainerRef) -> None:
        self.runner, self.ref = runner, ref

    async def run(self, code: str, seconds: float = 20) -> CodeOutcome:
        return await self.runner.execute(self.ref, code, seconds, 4000)

    async def said(self, code: str) -> str:
        """What it printed, whatever became of it."""
        return (await self.run(code)).logs.strip()


@asynccontextmanager
async def runner_with(**settings: Any) -> AsyncIterator[LocalRunner]:
    runner = LocalRunner(LocalRunnerSettings(disk_mb=16, **settings))
    try:
        yield runner
    finally:
        await runner.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner() -> AsyncIterator[LocalRunner]:
    async with runner_with() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def box(runner: LocalRunner) -> AsyncIterator[Sandboxed]:
    ref = ContainerRef(f"cntr_{os.urandom(6).hex()}", "a", "", 256 * MIB)
    await runner.open(ref)
    yield Sandboxed(runner, ref)
    await runner.end(ref)


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"])
async def test_there_is_no_network(box: Sandboxed, family: str) -> None:
    said = await box.said(f"import socket\nsocket.socket(socket.{family}, socket.SOCK_RAW)")
    assert "OSError" in said


async def test_abstract_sockets_of_the_machine_are_not_there(box: Sandboxed) -> None:
    def serve(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    name = f"\0pointsman-{os.urandom(4).hex()}"
    server = await asyncio.start_unix_server(serve, name)
    async with server:
        code = f"import socket\nsocket.socket(socket.AF_UNIX).connect({name!r})"
        assert "ConnectionRefusedError" in await box.said(code)


async def test_files_of_the_machine_are_not_there(box: Sandboxed, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    places = [str(tmp_path / "secret"), "/etc/passwd", "/etc/shadow", "/root", "/home", "/var"]
    places += ["/run", "/sys", "/boot", str(Path(__file__)), "/proc/1/root/etc/passwd"]
    places += [f"/proc/{os.getpid()}/environ", "/oldroot", "/dev/vda", "/dev/sda", "/dev/kmsg"]
    code = f"import os\nprint([p for p in {places!r} if os.access(p, os.R_OK)])"
    assert await box.said(code) == "[]"


@pytest.mark.parametrize("place", ["/", "/usr", "/usr/bin", "/dev", "/opt", "/etc", "/mnt"])
async def test_only_its_own_folders_can_be_written(box: Sandboxed, place: str) -> None:
    said = await box.said(f"open('{place}/x', 'w')")
    assert re.search(r"(OSError|PermissionError|FileNotFoundError)", said)


async def test_files_of_other_containers_are_not_there(runner: LocalRunner, box: Sandboxed) -> None:
    other = ContainerRef("cntr_other", "b", "", 256 * MIB)
    await runner.open(other)
    try:
        await runner.write(other, "theirs.txt", "1", b"theirs", last=True)
        code = (
            "import os\nprint([n for _, _, names in os.walk('/') for n in names if 'theirs' in n])"
        )
        assert await box.said(code) == "[]"
        assert await runner.files(box.ref) == []
    finally:
        await runner.end(other)


async def test_symbolic_links_lead_the_api_nowhere(box: Sandboxed) -> None:
    await box.run(
        "import os\nos.symlink('/etc/passwd', 'link'); os.symlink('/', 'root'); os.mkfifo('pipe')\n"
        "os.makedirs('sub'); os.symlink('/usr/bin', 'sub/bin'); open('real', 'w').write('x')"
    )
    files = await box.runner.files(box.ref)
    assert [file.path for file in files] == ["real"]
    for path in ("link", "pipe", "../../etc/passwd", "/etc/passwd"):
        with pytest.raises(RunnerFailed):
            await box.runner.read(box.ref, path, 0, 100)
    await box.runner.write(box.ref, "link", "1", b"own", last=True)  # takes the link's place
    assert await box.runner.read(box.ref, "link", 0, 100) == b"own"


async def test_a_link_in_the_place_of_an_upload_is_not_followed(box: Sandboxed) -> None:
    await box.run("import os\nos.symlink('/mnt/data/target', '.pointsman-upload-1')")
    with pytest.raises(RunnerFailed):
        await box.runner.write(box.ref, "a", "1", b"x", last=False)


async def test_the_environment_has_nothing_of_the_router(
    box: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "sk-secret")
    other = ContainerRef("cntr_later", "a", "", 256 * MIB)
    await box.runner.open(other)
    try:
        later = Sandboxed(box.runner, other)
        code = "import glob\nfor f in glob.glob('/proc/*/environ'):\n"
        code += "  try: print(open(f).read())\n  except OSError: print('closed')"
        said = await later.said(f"import os\nprint(dict(os.environ))\n{code}")
        assert "sk-secret" not in said
    finally:
        await box.runner.end(other)


async def test_processes_of_the_machine_are_not_there(box: Sandboxed) -> None:
    said = await box.said(
        "import os\nprint(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))"
    )
    assert len(said.split(",")) == 3  # bubblewrap's, the supervisor, and the interpreter


async def test_a_fork_bomb_ends_at_its_limit(box: Sandboxed) -> None:
    code = (
        "import os, time\ncount = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(300)\n"
    )
    code += "    count += 1\nexcept OSError: print(count)"
    assert int(await box.said(code)) < 64
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    assert (await box.run(bomb, seconds=2)).outcome in ("timeout", "memory")
    assert await box.said("1 + 1") == "2"


async def test_threads_are_counted_too(box: Sandboxed) -> None:
    code = "import threading, time\ntry:\n  while True:\n"
    code += "    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n"
    code += "except RuntimeError: print(threading.active_count())"
    assert int(await box.said(code)) <= 64


async def test_no_process_is_left_between_calls(box: Sandboxed) -> None:
    await box.run(
        "import subprocess\nfor _ in range(5):\n"
        "  subprocess.Popen(['sleep', '300'], start_new_session=True)\nimport os"
    )
    assert await box.said(ALIVE) == "3"


async def test_processes_that_run_away_end_or_the_container_does(box: Sandboxed) -> None:
    code = (
        "import os\nif os.fork() == 0:\n  os.setsid()\n  while True:\n    if os.fork(): os._exit(0)"
    )
    try:
        await box.run(code)
        assert await box.said(ALIVE) == "3"
    except ContainerGone:
        pass


async def test_memory_of_one_process_is_limited(box: Sandboxed) -> None:
    assert "MemoryError" in await box.said("len(bytearray(300 * 1024 * 1024))")


async def test_memory_of_all_processes_together_is_limited(box: Sandboxed) -> None:
    code = "import os, time\nfor _ in range(8):\n  if os.fork() == 0:\n"
    code += "    held = bytearray(os.urandom(1024)) * (100 * 1024)\n    time.sleep(300)\n"
    code += "time.sleep(300)"
    outcome = await box.run(code)
    assert (outcome.outcome, outcome.lost) == ("memory", True)


@pytest.mark.parametrize(
    "code",
    [
        "os.memfd_create('x')",
        "libc.shmget(0, 1 << 30, 0o1600)",
        "libc.msgget(0, 0o1600)",
    ],
)
async def test_memory_that_nothing_counts_cannot_be_had(box: Sandboxed, code: str) -> None:
    said = await box.said(f"{LIBRARY}\nprint({code})")
    assert said == "-1" or "PermissionError" in said


@pytest.mark.parametrize("place", ["/mnt/data", "/tmp", "/dev/shm"])
async def test_a_full_disk_is_the_containers_own(box: Sandboxed, place: str) -> None:
    said = await box.said(
        f"for n in range(100):\n  with open(f'{place}/{{n}}', 'wb') as f: f.write(b'x' * 2**20)"
    )
    assert "No space left on device" in said
    assert await box.said("1 + 1") == "2"


async def test_a_file_is_no_larger_than_the_disk(box: Sandboxed) -> None:
    assert "Error" in await box.said("open('sparse', 'wb').truncate(1 << 40)")


async def test_too_many_files_end_the_code_and_are_removed(box: Sandboxed) -> None:
    code = "n = 0\nwhile True:\n  open(f'/mnt/data/{n}', 'w').close()\n  n += 1"
    assert (await box.run(code)).outcome == "files"
    assert await box.runner.files(box.ref) == []
    assert await box.said("1 + 1") == "2"


async def test_endless_output_is_cut_and_ends_with_its_time(box: Sandboxed) -> None:
    outcome = await box.run("while True: print('x' * 1000)", seconds=2)
    assert outcome.outcome == "timeout"
    assert "bytes left out" in outcome.logs
    assert len(outcome.logs) < 6000


async def test_output_of_what_is_left_does_not_keep_a_call_from_its_end(box: Sandboxed) -> None:
    code = "import subprocess\nfor _ in range(12): subprocess.Popen('yes')\n42"
    outcome = await box.run(code, seconds=4)
    assert (outcome.outcome, outcome.lost) == ("completed", False)
    assert await box.said("1 + 1") == "2"


async def test_output_without_a_reader_of_its_own_is_cut_too(box: Sandboxed) -> None:
    outcome = await box.run("import os\nos.system('yes')", seconds=2)
    assert outcome.outcome == "timeout"
    assert len(outcome.logs) < 6000


@pytest.mark.parametrize(
    "call",
    [
        "'ptrace', 16, 2, 0, 0",
        "'kill', 2, 9",
        "'kill', 2, 19",
        "'kill', -1, 9",
        "'kill', 1, 9",
        "'syscall', 200, 2, 9",
        "'syscall', 234, 2, 2, 19",
        "'syscall', 434, 2, 0",
        "'fcntl', 0, 10, 19",
        "'fcntl', 0, 8, 2",
        "'prlimit', 2, 0, None, None",
        "'sched_setscheduler', 2, 5, None",
        "'process_vm_readv', 2, None, 0, None, 0, 0",
        "'setuid', 0",
        "'setgid', 0",
        "'unshare', 0x10000000",
        "'unshare', 0x20000",
        "'syscall', 56, 0x10000000 | 17, 0, 0, 0, 0",
        "'syscall', 435, None, 0",
        "'setns', 0, 0",
        "'mount', b'none', b'/tmp', b'tmpfs', 0, None",
        "'umount2', b'/tmp', 2",
        "'chroot', b'/tmp'",
        "'syscall', 425, 8, None",
        "'syscall', 321, 0, None, 0",
        "'syscall', 298, None, 0, 0, 0, 0",
        "'syscall', 323, 0",
        "'syscall', 250, 0, 0",
        "'syscall', 304, 0, None, 0",
        "'syscall', 600",
        "'syscall', 0x40000000 + 39",
        "'personality', 8",
    ],
)
async def test_system_calls_that_code_has_no_use_for_are_refused(box: Sandboxed, call: str) -> None:
    if os.uname().machine != "x86_64" and "syscall" in call:
        pytest.skip("the numbers are those of x86_64")
    assert await box.said(f"{LIBRARY}\nprint(call({call}))") == "refused"
    assert await box.said("1 + 1") == "2"


async def test_set_user_id_programs_give_no_rights(box: Sandboxed) -> None:
    code = "import os, subprocess\nfound = [p for p in ('/usr/bin/su', '/usr/bin/mount') "
    code += "if os.path.exists(p) and os.stat(p).st_mode & 0o4000]\n"
    code += "print(open('/proc/self/status').read())"
    said = await box.said(code)
    assert "NoNewPrivs:\t1" in said
    assert "CapEff:\t0000000000000000" in said
    assert "CapBnd:\t0000000000000000" in said


async def test_the_supervisors_memory_and_files_are_closed(box: Sandboxed) -> None:
    for path in ("/proc/2/mem", "/proc/2/fd/0", "/proc/2/environ", "/proc/1/mem"):
        assert "Error" in await box.said(f"open('{path}', 'rb').read(1)")


async def test_the_interpreter_has_no_socket_to_the_router(box: Sandboxed) -> None:
    code = (
        "import os\nprint([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') "
    )
    code += "if os.path.exists(f'/proc/self/fd/{n}') or True][:9])"
    said = await box.said(code)
    assert said.count("socket:") <= 1  # the one to its supervisor


async def test_what_forges_an_answer_spoils_only_its_own(box: Sandboxed) -> None:
    code = "import os\nfor n in range(3, 30):\n  try: os.write(n, b'\\xff' * 100)\n"
    code += "  except OSError: pass"
    assert (await box.run(code, seconds=5)).outcome in ("ended", "error", "completed")
    assert await box.said("1 + 1") == "2"


async def test_outside_it_has_a_user_of_its_own_and_no_privileges(box: Sandboxed) -> None:
    code = "import time\nprint('here')\ntime.sleep(3)"
    running = asyncio.create_task(box.run(code))
    pids = await until(lambda: _named(b"guest.supervisor"), what="a sandbox")
    users = {os.stat(f"/proc/{pid}").st_uid for pid in pids}
    running.cancel()
    if os.geteuid() == 0:
        assert all(user >= 1_900_000_000 for user in users)
    assert 0 not in users


def _named(text: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if text in command and b"bwrap" not in command and b"launch.py" not in command:
                found.append(int(name))
    return found


async def test_who_leaves_the_queue_stops_nobody_else_and_is_not_run(box: Sandboxed) -> None:
    first = asyncio.ensure_future(box.run("import time; time.sleep(2); 'done'"))
    await asyncio.sleep(0.5)
    second = asyncio.ensure_future(box.run("open('second', 'w')"))
    await asyncio.sleep(0.1)
    second.cancel()
    outcome = await first
    assert (outcome.outcome, outcome.logs) == ("completed", "'done'\n")
    assert await box.runner.files(box.ref) == []


async def test_nothing_is_left_of_a_container_that_has_ended() -> None:
    async with runner_with() as runner:
        ref = ContainerRef("cntr_a", "a", "", 256 * MIB)
        await runner.open(ref)
        marked = Sandboxed(runner, ref)
        await marked.run("import subprocess\nprint(1)")
        running = asyncio.create_task(
            marked.run("import os\nos.spawnlp(os.P_WAIT, 'sleep', 'left-over', '999')")
        )
        await until(lambda: _named(b"left-over"), what="the process")
        await runner.end(ref)
        with pytest.raises(ContainerGone):
            await running
        await until(lambda: not _named(b"left-over"), what="its end")
        with pytest.raises(ContainerGone):
            await marked.run("1")


async def test_nothing_is_left_of_a_container_that_nobody_waited_for() -> None:
    async with runner_with(max_containers=1) as runner:
        assert await runner.problem() is None
        await until(lambda: not _children(), what="the end of the trial")
        before = set(os.listdir("/proc/self/fd"))
        for pause in (0, 0.001, 0.02, 0.06):
            opening = asyncio.ensure_future(runner.open(ContainerRef("cntr_a", "a", "", 256 * MIB)))
            await asyncio.sleep(pause)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await runner.end(ContainerRef("cntr_a", "a", "", 256 * MIB))
        await until(lambda: not _children(), what="their end")
        await until(lambda: set(os.listdir("/proc/self/fd")) <= before, what="closed files")


def _children() -> set[str]:
    """The processes of sandboxes that this one has started."""
    mine = Path("/proc/self/task").glob("*/children")
    return {pid for told in mine for pid in told.read_text().split()}


async def test_more_containers_than_there_may_be_are_refused() -> None:
    async with runner_with(max_containers=1) as runner:
        await runner.open(ContainerRef("cntr_a", "a", "", 256 * MIB))
        with pytest.raises(RunnerFailed, match="the limit"):
            await runner.open(ContainerRef("cntr_b", "a", "", 256 * MIB))


async def test_containers_that_nobody_knows_of_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with runner_with(max_containers=1) as runner:
        forgotten = ContainerRef("cntr_a", "a", "", 256 * MIB)
        await runner.open(forgotten)
        monkeypatch.setattr("router.containers.local.runner._FORGOTTEN_SECONDS", 0.0)
        await runner.open(ContainerRef("cntr_b", "a", "", 256 * MIB))
        with pytest.raises(ContainerGone):
            await runner.files(forgotten)


@pytest.fixture
def leaky() -> Iterator[str]:
    """A bubblewrap that leaves namespaces out, in a directory that every user may read."""
    with TemporaryDirectory() as directory:
        fake = Path(directory, "bwrap")
        fake.write_text(
            '#!/bin/bash\nargs=()\nfor one in "$@"; do\n'
            'case "$one" in\n--unshare-all) args+=(--unshare-pid --unshare-ipc --unshare-uts);;\n'
            "--seccomp) args+=(--sync-fd);;\n--clearenv) args+=(--setenv A_SECRET x);;\n"
            '*) args+=("$one");;\nesac\ndone\nexec /usr/bin/bwrap "${args[@]}"\n'
        )
        for place in (fake, Path(directory)):
            place.chmod(0o755)
        yield str(fake)


async def test_where_sandboxes_do_not_hold_no_code_is_run(leaky: str) -> None:
    async with runner_with(bubblewrap=leaky) as runner:
        problem = await runner.problem() or ""
        for what in ("sockets can be opened", "the environment is not empty"):
            assert what in problem
        with pytest.raises(RunnerFailed, match="cannot run code safely"):
            await runner.open(ContainerRef("cntr_a", "a", "", 256 * MIB))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"bubblewrap": "no-such-bwrap"}, "no-such-bwrap is not installed"),
        ({"python": "/usr/bin/false"}, "not a Python that can be run"),
        ({"bubblewrap": "/usr/bin/false"}, "cannot be started"),
        ({"cgroup": "no/../../such"}, "control group"),
    ],
)
async def test_what_is_missing_is_named(settings: dict[str, str], why: str) -> None:
    async with runner_with(**settings) as runner:
        assert why in (await runner.problem() or "")


async def test_control_groups_hold_all_of_a_sandbox_together() -> None:
    if os.geteuid() != 0 or not os.access("/sys/fs/cgroup", os.W_OK):
        pytest.skip("needs control groups")
    name = f"pointsman-test-{os.getpid()}"
    async with runner_with(cgroup=name) as runner:
        if (problem := await runner.problem()) is not None:
            pytest.skip(problem)
        ref = ContainerRef("cntr_a", "a", "", 256 * MIB)
        await runner.open(ref)
        assert _members(name)
        await runner.end(ref)
        assert not _members(name)
    _remove_groups(name)


def _members(name: str) -> list[str]:
    files = Path("/sys/fs/cgroup").glob(f"*/{name}/sandbox-*/cgroup.procs")
    return [one for file in files for one in file.read_text().split()]


def _remove_groups(name: str) -> None:
    for parent in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        parent.rmdir()
