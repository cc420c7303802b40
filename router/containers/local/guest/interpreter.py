"""The interpreter: executes what comes over a channel, in one namespace.

    {"code"}   {"well": whether it raised nothing, "images": [PNG in base64, ...]}

What code prints goes to the standard output. Figures of matplotlib that nobody has closed are
images, and so is a last value that can show itself as one.
"""

from __future__ import annotations

import ast
import base64
import io
import linecache
import os
import signal
import sys
import traceback
import types
from typing import Any

from .channel import Channel

__all__ = ["execute_all"]

_MOST_IMAGES = 8
_MOST_IMAGE_BYTES = 2 * 1024 * 1024
_HERE = os.path.dirname(os.path.abspath(__file__))


def execute_all(channel: Channel, folder: str) -> None:
    """Execute what comes; modules in ``folder`` can be imported. Raises Gone."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = [""]
    sys.path[0:1] = [folder]  # in the place of what these modules were found by
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout, sys.stderr = _writer(1), _writer(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    images: list[str] = []
    sys.displayhook = lambda value: _display(value, images)
    count = 0
    while True:
        code = channel.receive()["code"]
        count += 1
        images.clear()
        well = _execute(code, f"<code {count}>", main.__dict__)
        try:
            _take_figures(images)
        except BaseException:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass
        channel.send({"well": well, "images": images})


def _writer(number: int) -> io.TextIOWrapper:
    raw = os.fdopen(number, "wb", 0)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


def _execute(code: str, name: str, namespace: dict[str, Any]) -> bool:
    """Whether it raised nothing; else the traceback is printed."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            exec(compile(ast.Interactive([last]), name, "single"), namespace)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            return True
        _print_error(error)
        return False
    return True


def _print_error(error: BaseException) -> None:
    """Its traceback, without the frames of this program."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename.startswith(_HERE):
        shown = shown.tb_next
    try:
        traceback.print_exception(type(error), error, shown)
    except BaseException:
        print(type(error).__name__, file=sys.stderr)


def _display(value: Any, images: list[str]) -> None:
    """Show the value of a last expression."""
    if value is None:
        return
    picture = getattr(type(value), "_repr_png_", None)
    data = picture(value) if picture is not None else None
    if isinstance(data, bytes):
        _add_image(data, images)
    else:
        print(repr(value))


def _take_figures(images: list[str]) -> None:
    plots: Any = sys.modules.get("matplotlib.pyplot")
    if plots is None:
        return
    for number in plots.get_fignums():
        drawn = io.BytesIO()
        plots.figure(number).savefig(drawn, format="png")
        _add_image(drawn.getvalue(), images)
    plots.close("all")


def _add_image(data: bytes, images: list[str]) -> None:
    if len(images) >= _MOST_IMAGES or len(data) > _MOST_IMAGE_BYTES:
        print("[an image is not shown: it is too large, or one too many]")
    else:
        images.append(base64.b64encode(data).decode())
