"""Small files of each kind, made by hand or by the libraries that read them."""

from __future__ import annotations

import io

from docx import Document

__all__ = ["DOCX", "docx", "pdf"]

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_made: dict[str, bytes] = {}


def docx(text: str) -> bytes:
    """A document with this paragraph; the same bytes each time."""
    if text not in _made:
        document = Document()
        document.add_paragraph(text)
        file = io.BytesIO()
        document.save(file)
        _made[text] = file.getvalue()
    return _made[text]


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each of its pages."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Contents {5 + 2 * number} 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    out = b"%PDF-1.4\n"
    places = []
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    return out + end.encode()
