"""The text of files, whatever they are made of, and what a hostile one can do: nothing."""

from __future__ import annotations

import asyncio
import io
import os
import struct
import subprocess
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from router.errors import Overloaded
from router.files.extraction import (
    ExtractionFailed,
    TextExtractor,
    UnsupportedFile,
    missing_extractors,
)
from router.settings.files import ExtractionSettings
from tests.files.samples import DOCX, docx, pdf
from tests.support.waiting import until

PART = "word/document.xml"


@pytest.fixture
async def extractor() -> AsyncIterator[TextExtractor]:
    extractor = TextExtractor(
        ExtractionSettings(timeout=20, memory_mb=512, max_expanded_mb=32, max_characters=100_000)
    )
    yield extractor
    extractor.close()


def repacked(change: Callable[[str, bytes], bytes]) -> bytes:
    """A DOCX whose parts are changed."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(docx("Hello"))) as given,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made,
    ):
        for name in given.namelist():
            made.writestr(name, change(name, given.read(name)))
    return out.getvalue()


def in_document(change: Callable[[bytes], bytes]) -> bytes:
    return repacked(lambda name, part: change(part) if name == PART else part)


@pytest.mark.parametrize(
    ("content", "name", "said", "text", "kind"),
    [
        ("Grüße".encode(), "a.txt", None, "Grüße", "text/plain"),
        (b"# Title", "README.md", None, "# Title", "text/markdown"),
        (b"a,b\n1,2", "a.csv", "text/csv", "a,b\n1,2", "text/csv"),
        (b'{"a": 1}', "a.json", "application/json", '{"a": 1}', "application/json"),
        (b"print(1)", "a.py", "text/x-python", "print(1)", "text/x-python"),
        (b"no name", "file", None, "no name", "text/plain"),
        (b"<p>One<p>Two", "a.html", None, "One\n\nTwo", "text/html"),
        (b"<html><p>One", "file", None, "One", "text/html"),
        ("Grüße".encode("utf-16"), "a.txt", None, "Grüße", "text/plain"),
        ("Grüße, schöne Wörter".encode("cp1252"), "a.txt", None, None, "text/plain"),
        (pdf("First page.", "Second page."), "a.pdf", None, "First page.\n\nSecond page.", None),
        (docx("Hello"), "a.docx", None, "Hello", DOCX),
        (docx("Hello"), "renamed.txt", "text/plain", "Hello", DOCX),
    ],
)
async def test_kinds(
    extractor: TextExtractor,
    content: bytes,
    name: str,
    said: str | None,
    text: str | None,
    kind: str | None,
) -> None:
    found = await extractor.extract_data(content, name, said)

    assert found.text.strip() == (text or "Grüße, schöne Wörter")
    assert found.media_type == (kind or "application/pdf")


async def test_a_file_by_its_path(extractor: TextExtractor, tmp_path: Path) -> None:
    (tmp_path / "file-1").write_bytes(docx("Hello"))

    assert (await extractor.extract(tmp_path / "file-1", "a.docx")).text == "Hello\n"
    with pytest.raises(ExtractionFailed, match="cannot read it"):
        await extractor.extract(tmp_path / "file-2", "a.docx")


async def test_tables(extractor: TextExtractor) -> None:
    from docx import Document

    document = Document()
    table = document.add_table(2, 3)
    for number, text in enumerate("abc"):
        table.cell(0, number).text = text
    table.cell(1, 0).merge(table.cell(1, 1)).text = "wide"
    file = io.BytesIO()
    document.save(file)

    assert (await extractor.extract_data(file.getvalue(), "a.docx")).text == "a\tb\tc\nwide\t\n"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x89PNG\r\n\x1a\n", r"an image \(PNG\)"),
        (b"\xd0\xcf\x11\xe0rest", "an old Microsoft Office"),
        (b"MZ\0\0", "a program"),
        (b"a\0b", "no text file"),
    ],
)
async def test_others_are_refused(extractor: TextExtractor, content: bytes, what: str) -> None:
    with pytest.raises(UnsupportedFile, match=f"It is .*{what}.* PDF and DOCX"):
        await extractor.extract_data(content, "a.txt", "text/plain")


@pytest.mark.parametrize(
    ("name", "what"),
    [("xl/workbook.xml", "spreadsheet"), ("ppt/p.xml", "presentation"), ("a.txt", "archive")],
)
async def test_other_archives(extractor: TextExtractor, name: str, what: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(UnsupportedFile, match=what):
        await extractor.extract_data(out.getvalue(), "a.docx")


async def test_nothing_in_it(extractor: TextExtractor) -> None:
    for content, why in ((b" \n", "no text in it"), (pdf(""), "scanned pages")):
        with pytest.raises(ExtractionFailed, match=why):
            await extractor.extract_data(content, "a")


async def test_a_password(extractor: TextExtractor) -> None:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("Secret"))))
    writer.encrypt("open sesame", algorithm="AES-256")
    file = io.BytesIO()
    writer.write(file)
    with pytest.raises(ExtractionFailed, match="encrypted with a password"):
        await extractor.extract_data(file.getvalue(), "a.pdf")


async def test_too_much_text(extractor: TextExtractor) -> None:
    with pytest.raises(ExtractionFailed, match="longer than 100000 characters"):
        await extractor.extract_data(b"a" * 100_001, "a.txt")
    assert len((await extractor.extract_data(b"a" * 100_000, "a.txt")).text) == 100_000


async def test_too_large_a_file() -> None:
    extractor = TextExtractor(ExtractionSettings(max_mb=0.001))
    with pytest.raises(ExtractionFailed, match=r"larger than 0\.001 MiB"):
        await extractor.extract_data(b"a" * 2000, "a.txt")
    extractor.close()


async def test_an_archive_that_expands(extractor: TextExtractor) -> None:
    """100 MB of blanks in 100 KB."""
    bomb = in_document(lambda part: part.replace(b"Hello", b" " * 100_000_000))
    assert len(bomb) < 200_000
    with pytest.raises(ExtractionFailed, match="expands to more than 32 MiB"):
        await extractor.extract_data(bomb, "a.docx")


async def test_an_archive_that_lies(extractor: TextExtractor) -> None:
    """It says that a part is small, and is read no further than that."""
    bomb = bytearray(in_document(lambda part: part.replace(b"Hello", b" " * 100_000_000)))
    place = bomb.rindex(PART.encode()) - 46
    bomb[place + 24 : place + 28] = struct.pack("<I", 1000)
    with pytest.raises(ExtractionFailed, match="damaged"):
        await extractor.extract_data(bytes(bomb), "a.docx")


async def test_an_archive_of_many_parts(extractor: TextExtractor) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(10_001):
            archive.writestr(f"word/{number}", "")
    with pytest.raises(ExtractionFailed, match="expands to more"):
        await extractor.extract_data(out.getvalue(), "a.docx")


def with_entities(*declared: str, use: str) -> bytes:
    dtd = f"<!DOCTYPE w [{''.join(declared)}]>".encode()

    def change(part: bytes) -> bytes:
        head, end, rest = part.partition(b"?>")
        return head + end + dtd + rest.replace(b"Hello", b"Hello" + use.encode())

    return in_document(change)


async def outcome(extractor: TextExtractor, content: bytes, name: str) -> str:
    """The text, or what was wrong."""
    try:
        return (await extractor.extract_data(content, name)).text
    except (ExtractionFailed, UnsupportedFile) as error:
        return str(error)


async def test_entities_that_multiply(extractor: TextExtractor) -> None:
    """A billion laughs: ten of ten of ten …, nine levels deep."""
    levels = ['<!ENTITY l0 "lol">']
    levels += [f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10)]
    said = await outcome(extractor, with_entities(*levels, use="&l9;"), "a.docx")

    assert "lol" not in said
    assert len(said) < 200


async def test_entities_from_elsewhere(extractor: TextExtractor, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    declared = f'<!ENTITY x SYSTEM "{secret.as_uri()}">'
    assert "the secret" not in await outcome(
        extractor, with_entities(declared, use="&x;"), "a.docx"
    )
    remote = '<!ENTITY % x SYSTEM "http://127.0.0.1:1/x.dtd"> %x;'
    assert len(await outcome(extractor, with_entities(remote, use=""), "a.docx")) < 200


async def test_a_stream_in_a_pdf_that_expands() -> None:
    """A page of 400 MB in 400 KB: memory and time end it, and nothing else suffers."""
    extractor = TextExtractor(ExtractionSettings(timeout=10, memory_mb=256))
    packed = zlib.compress(b" " * 400_000_000, 9)
    content = pdf("Hello").replace(b"BT /F1 12 Tf 72 720 Td (Hello) Tj ET", packed)
    content = content.replace(
        b"<< /Length 36 >>", b"<< /Length %d /Filter /FlateDecode >>" % len(packed)
    )
    with pytest.raises(ExtractionFailed):
        await extractor.extract_data(content, "a.pdf")
    extractor.close()


async def test_html_that_nests(extractor: TextExtractor) -> None:
    said = await outcome(extractor, b"<div>" * 300_000 + b"deep", "a.html")
    assert len(said) < 200


async def test_time_is_limited() -> None:
    extractor = TextExtractor(ExtractionSettings(timeout=0.01))
    with pytest.raises(ExtractionFailed, match=r"within 0\.01 s"):
        await extractor.extract_data(b"a", "a.txt")
    extractor.close()


async def test_what_waits_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = TextExtractor(ExtractionSettings(processes=1, max_waiting=1))
    under_way = [asyncio.create_task(extractor.extract_data(b"a", "a.txt")) for _ in range(2)]
    await until(lambda: extractor._under_way == 2)
    with pytest.raises(Overloaded, match="Too many files wait"):
        await extractor.extract_data(b"a", "a.txt")
    assert [text.text for text in await asyncio.gather(*under_way)] == ["a", "a"]
    extractor.close()


async def test_nobody_waits_for_it(extractor: TextExtractor) -> None:
    """A caller that is cancelled leaves no process."""
    reading, writing = os.pipe()
    task: asyncio.Task[Any] = asyncio.create_task(
        extractor._run(lambda: os.fdopen(reading, "rb"), "a.txt", None)
    )
    await until(lambda: extractor._threads is not None and bool(extractor._threads._threads))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    os.close(writing)

    assert extractor._under_way == 0


async def test_the_process_has_nothing_of_the_router(
    extractor: TextExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its environment, nor its files to write to."""
    child = 'import os, resource, sys; print(\'{"media_type": "\' + repr((dict(os.environ), '
    child += "os.getcwd())).replace('\"', '') + '\"}')"
    monkeypatch.setenv("ADMIN_KEY", "secret")
    seen: list[Any] = []
    popen = subprocess.Popen

    def started(command: list[str], **options: Any) -> Any:
        seen.append(options)
        return popen([command[0], "-I", "-c", child], **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    found = await extractor.extract_data(b"a", "a.txt")

    assert "secret" not in found.media_type
    assert "'/'" in found.media_type
    assert seen[0]["cwd"] == "/"


def test_everything_is_installed() -> None:
    assert missing_extractors() is None
