"""What the process runs that extracts the text of a page: HTML in, JSON out.

It is run by its path, without the rest of the router: of what a page can do to a parser (deep
nesting and many attributes take it quadratic time), nothing reaches the router's own process. It
limits itself; whoever starts it has a deadline besides.

    python page_text_child.py CHARSET MOST_CHARACTERS CPU_SECONDS MEMORY_MIB
"""

from __future__ import annotations

import json
import resource
import sys

_LEAST_ARTICLE = 250
"""Characters: a shorter "main part" of a page that has more is taken for a mistake."""


def _limit(seconds: int, mebibytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))


def _decoded(body: bytes, charset: str) -> str:
    from resiliparse.parse.encoding import (  # noqa: PLC0415
        bytes_to_str,
        detect_encoding,
        map_encoding_to_html5,
    )

    known = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    encoding = known or detect_encoding(body, from_html_meta=True) or "utf-8"
    return bytes_to_str(body, encoding, errors="replace")


def _extracted(html: str, most: int) -> tuple[str, str]:
    """The title, and the text of the main part, or all of it where no such part is found."""
    from resiliparse.extract.html2text import extract_plain_text  # noqa: PLC0415
    from resiliparse.parse.html import HTMLTree  # noqa: PLC0415

    tree = HTMLTree.parse(html)
    title = tree.title or ""
    text = extract_plain_text(tree, main_content=True, comments=False)
    if len(text) < _LEAST_ARTICLE:
        whole = extract_plain_text(tree)
        text = max(text, whole, key=len)
    return title[:1000], text[:most]


def main() -> None:
    charset, most, seconds, mebibytes = sys.argv[1:]
    _limit(int(seconds), int(mebibytes))
    title, text = _extracted(_decoded(sys.stdin.buffer.read(), charset), int(most))
    json.dump({"title": title, "text": text}, sys.stdout)


if __name__ == "__main__":
    main()
