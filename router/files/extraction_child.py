"""What the process runs that extracts the text of a file: the file in, JSON and text out.

It is run by its path, without the rest of the router and its environment: of what a file can do to
a parser nothing reaches the router's own process. It limits itself, may not write to any file, and
whoever starts it has a deadline besides. The file is its standard input, which can be sought in.

    python extraction_child.py NAME MEDIA_TYPE MOST_CHARACTERS MOST_EXPANDED CPU_SECONDS MEMORY_MIB

The first line of what it says is ``{"media_type": …}``, with the text behind it; or
``{"unsupported": …}`` or ``{"failed": …}``, each a sentence for the client.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final
from zipfile import BadZipFile, ZipFile

DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PDF: Final = "application/pdf"
HTML: Final = "text/html"

_MIB: Final = 1 << 20
_HEAD: Final = 4096
_OPEN_FILES: Final = 64
_MOST_PARTS: Final = 10_000
"""Files in a compressed one."""

_BY_EXTENSION: Final = {
    "csv": "text/csv",
    "htm": HTML,
    "html": HTML,
    "json": "application/json",
    "jsonl": "application/jsonl",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "tsv": "text/tab-separated-values",
    "xhtml": HTML,
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}
_OFFICE: Final = {
    "ppt/": "a presentation (PPTX)",
    "xl/": "a spreadsheet (XLSX)",
    "META-INF/": "an archive or a book",
    "content.xml": "an OpenDocument file",
}
_NO_TEXT: Final = (
    (b"\x89PNG", "an image (PNG)"),
    (b"\xff\xd8\xff", "an image (JPEG)"),
    (b"GIF8", "an image (GIF)"),
    (b"\xd0\xcf\x11\xe0", "a file of an old Microsoft Office (DOC, XLS, PPT)"),
    (b"{\\rtf", "a rich text file (RTF)"),
    (b"\x1f\x8b", "compressed (gzip)"),
    (b"7z\xbc\xaf", "an archive (7z)"),
    (b"Rar!", "an archive (RAR)"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
_READ: Final = "Text is read from text files, Markdown, HTML, CSV, JSON, PDF and DOCX."


class Unsupported(Exception):
    """There is no text in files of this kind: a sentence."""


class Failed(Exception):
    """It cannot be read: a sentence."""


def main() -> None:
    """See the module."""
    name, said, characters, expanded, seconds, memory = sys.argv[1:]
    _limit(int(seconds), int(memory))
    most = int(characters)
    file = sys.stdin.buffer
    try:
        media_type = kind(file, name, said)
        text = _joined(pieces(file, media_type, int(expanded)), most)
        if not text.strip():
            raise Failed(
                "There is no text in it; it may be made of images, such as scanned pages."
                if media_type == PDF
                else "There is no text in it."
            )
        _tell({"media_type": media_type}, text)
    except Unsupported as error:
        _tell({"unsupported": str(error)})
    except Failed as error:
        _tell({"failed": str(error)})
    except (MemoryError, RecursionError):
        _tell({"failed": f"It takes more than {memory} MiB of memory to read."})
    except ModuleNotFoundError as error:
        _tell({"unsupported": f"This router cannot read such files: {error.name} is missing."})
    except Exception:
        _tell({"failed": "It is damaged, or not what its name says."})


def kind(file: BinaryIO, name: str, said: str) -> str:
    """The media type of a file that text can be read from; raises Unsupported."""
    head = file.read(_HEAD)
    file.seek(0)
    if b"%PDF-" in head[:1024]:
        return PDF
    if head.startswith(b"PK\x03\x04"):
        return _kind_of_zip(file)
    for beginning, what in _NO_TEXT:
        if head.startswith(beginning):
            raise Unsupported(f"It is {what}. {_READ}")
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unsupported(f"It is no text file. {_READ}")
    extension = name.rpartition(".")[2].lower()
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower()
    if said in (HTML, "application/xhtml+xml") or begin.startswith((b"<!doctype html", b"<html")):
        return HTML
    textual = said.startswith("text/") or said in _BY_EXTENSION.values()
    return _BY_EXTENSION.get(extension) or (said if textual else "text/plain")


def pieces(file: BinaryIO, media_type: str, expanded: int) -> Iterable[str]:
    """The text, in pieces; raises Failed."""
    if media_type == PDF:
        return _of_pdf(file)
    if media_type == DOCX:
        return _of_docx(file, expanded)
    text = _decoded(file.read())
    return [_of_html(text) if media_type == HTML else text]


def _kind_of_zip(file: BinaryIO) -> str:
    try:
        with ZipFile(file) as archive:
            names = archive.namelist()
    except BadZipFile:
        raise Failed("It is damaged: it begins as a ZIP file, but is none.") from None
    finally:
        file.seek(0)
    if any(name.startswith("word/") for name in names):
        return DOCX
    for beginning, what in _OFFICE.items():
        if any(name.startswith(beginning) for name in names):
            raise Unsupported(f"It is {what}. {_READ}")
    raise Unsupported(f"It is an archive (ZIP). {_READ}")


def _of_pdf(file: BinaryIO) -> Iterator[str]:
    from pypdf import PdfReader  # noqa: PLC0415

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Failed("It is encrypted with a password.")
    for page in reader.pages:
        yield page.extract_text() + "\n\n"


def _of_docx(file: BinaryIO, expanded: int) -> Iterator[str]:
    from docx import Document  # noqa: PLC0415

    with ZipFile(file) as archive:
        parts = archive.infolist()
        # Nothing reads more of a part than its head says.
        if len(parts) > _MOST_PARTS or sum(part.file_size for part in parts) > expanded:
            raise Failed(f"It expands to more than {expanded / _MIB:g} MiB.")
    file.seek(0)
    yield from _of_blocks(Document(file).iter_inner_content())


def _of_blocks(blocks: Iterable[Any]) -> Iterator[str]:
    for block in blocks:
        if hasattr(block, "rows"):
            for row in block.rows:
                cells = {
                    cell._tc: cell for cell in row.cells
                }  # one that spans columns is there once
                texts = ("".join(_of_blocks(cell.iter_inner_content())) for cell in cells.values())
                yield "\t".join(" ".join(text.split()) for text in texts) + "\n"
        else:
            yield block.text + "\n"


def _of_html(text: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text  # noqa: PLC0415

    return str(extract_plain_text(text, main_content=False))


def _decoded(raw: bytes) -> str:
    """UTF-16 where it says so, else UTF-8, else what it looks like."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        from resiliparse.parse.encoding import bytes_to_str, detect_encoding  # noqa: PLC0415

        return str(bytes_to_str(raw, detect_encoding(raw) or "utf-8", errors="replace"))


def _joined(parts: Iterable[str], most: int) -> str:
    found, size = [], 0
    for part in parts:
        size += len(part)
        if size > most:
            raise Failed(f"Its text is longer than {most} characters.")
        found.append(part)
    return "".join(found)


def _tell(head: dict[str, str], text: str = "") -> None:
    out = sys.stdout.buffer
    out.write(json.dumps(head).encode() + b"\n" + text.encode("utf-8", "replace"))
    out.flush()
    os._exit(0)  # without taking apart what may be large


def _limit(seconds: int, mebibytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))


if __name__ == "__main__":
    main()
