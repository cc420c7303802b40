"""How cost grows: what is measured, and the table."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from . import procfs, scaling_axes
from .check import Checker
from .children import BenchError, Child, Children
from .measure import Bench, Plan, Target
from .mock import serve
from .report import Figures
from .routers import Routers
from .scaling import main, row
from .scaling_axes import AXES, Axis, Scaling

AXIS = Axis("endpoints", (1, 10), AXES["endpoints"].begin, " of them")


def figures(**sizes: list[float]) -> Figures:
    made = Figures()
    for size, values in sizes.items():
        for number, value in enumerate(values):
            made.add(size.removeprefix("of"), number, {AXIS.title: value})
    return made


def test_a_ratio_is_that_of_the_same_round() -> None:
    found = row(AXIS, figures(of1=[10.0, 100.0, 1000.0], of10=[15.0, 150.0, 1400.0]))
    assert found == "| endpoints | 1 of them: 100 | 10 of them: 150 (1.50 ×) |  |  |"
    with pytest.raises(BenchError, match="nothing was measured with 10"):
        row(AXIS, figures(of1=[10.0]))


def test_an_axis_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "chains,moons"])
    assert "'moons' is none of endpoints, models, " in capsys.readouterr().err


def scaling(port: int, directory: Path) -> tuple[Scaling, Target]:
    """What measures the server on this port, as if another process were it."""
    process = subprocess.Popen(["sleep", "60"])
    child = Child("mock", process, directory / "log")
    bench = Bench(plan=Plan.quick(), key="k", mock_port=port, proxies=[], core=0)
    target = Target("mock", port, "/v1/responses", child, Checker(own_ids=False))
    return Scaling(Routers(Children(directory), directory, 0, port, "k"), bench, Figures()), target


async def test_streams_are_measured_while_all_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling_axes, "_WINDOW", 0.5)
    monkeypatch.setattr(scaling_axes, "_END", 0.0)
    spent = [0.0, 0.25]
    monkeypatch.setattr(procfs, "cpu_seconds", lambda pid: spent.pop(0))
    async with await serve("127.0.0.1", 0) as server:
        measured, target = scaling(server.sockets[0].getsockname()[1], tmp_path)
        try:
            values = await measured.steady(target, streams=3)
        finally:
            target.child.process.kill()
            target.child.process.wait()
    events = 0.25e6 / values["cpu_us"]
    assert 3 < events < 3 * 1000  # each stream has a word a millisecond, at most
    assert spent == []


async def test_streams_that_do_not_open_end_the_run(tmp_path: Path) -> None:
    measured, target = scaling(1, tmp_path)
    try:
        with pytest.raises(OSError, match="Connect call failed"):
            await measured.steady(target, streams=3)
    finally:
        target.child.process.kill()
        target.child.process.wait()
