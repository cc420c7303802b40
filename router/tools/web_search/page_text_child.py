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

_MAIN = "main, [role=main]"
_AROUND = ["nav", "footer", "dialog", "button", "select", "[role=navigation]", "[aria-hidden=true]"]
"""What of a page is not what it says. Guesses at more (``main_content``) take lists with them."""

_LEAST_MAIN = 250
"""Characters: a page whose main part says less says it elsewhere."""


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
    # One wrong byte is no reason to take the page for one in another encoding.
    return bytes_to_str(body, encoding, errors="replace", fallback_encodings=())


def _extracted(html: str, most: int) -> tuple[str, str]:
    """The title, and the text of the main part, or all of it where no such part is found."""
    from resiliparse.extract.html2text import extract_plain_text  # noqa: PLC0415
    from resiliparse.parse.html import HTMLTree  # noqa: PLC0415

    tree = HTMLTree.parse(html)
    main = None if tree.document is None else tree.document.query_selector(_MAIN)
    text = "" if main is None else extract_plain_text(main.html, skip_elements=_AROUND)
    if len(text) < _LEAST_MAIN:
        text = max(text, extract_plain_text(tree, skip_elements=_AROUND), key=len)
    return (tree.title or "")[:1000], text[:most]


def main() -> None:
    charset, most, seconds, mebibytes = sys.argv[1:]
    _limit(int(seconds), int(mebibytes))
    title, text = _extracted(_decoded(sys.stdin.buffer.read(), charset), int(most))
    json.dump({"title": title, "text": text}, sys.stdout)


if __name__ == "__main__":
    main()
