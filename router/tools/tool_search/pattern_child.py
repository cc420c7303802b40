"""The process that ``pattern`` starts: reads ``[pattern, most, [texts, texts, …]]`` as JSON, writes
``{"found": places}`` or ``{"error": why}``. It imports nothing of the router.
"""

import json
import re
import resource
import sys
import warnings

_CPU_SECONDS = 3
_BYTES = 512 << 20


def _search(pattern: str, most: int, fields: list[list[str]]) -> dict[str, object]:
    try:
        found_in = re.compile(pattern).search
    except (re.error, RecursionError, OverflowError) as error:
        return {"error": str(error)[:200]}
    found: dict[int, None] = {}
    for texts in fields:
        for place, text in enumerate(texts):
            if len(found) == most:
                return {"found": list(found)}
            if place not in found and text and found_in(text):
                found[place] = None
    return {"found": list(found)}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    warnings.simplefilter("ignore")
    json.dump(_search(*json.load(sys.stdin.buffer)), sys.stdout)


if __name__ == "__main__":
    main()
