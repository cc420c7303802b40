"""A field that is added to the table is served everywhere: nothing else is edited."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from router.dialects.responses import fields
from tests.support.copied import copied, run_in

TABLE: Final = "router/dialects/responses/fields.py"
BEGINS: Final = "FIELDS: Final = (\n"
ADDED: Final = """\
    RequestField(
        name="creativeness",
        type=of.count(1, 10),
        description="How far it may go.",
        default=5,
        echo="always",
        idle=(5,),
    ),
"""
ASKS: Final = """
import asyncio

import router
from tests.support.fetch import fetch
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

DROPPED = "X-Pointsman-Dropped-Parameters"


async def main():
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat"), cache={"mode": "always"}) as running,
    ):
        refused = (await running.ask(creativeness=11)).json["error"]
        assert refused["param"] == "creativeness", refused
        assert refused["code"] == "integer_above_max_value", refused

        plain = await running.ask()
        assert plain.json["creativeness"] == 5, "the default is echoed"
        assert (plain.headers["X-Cache"], DROPPED in plain.headers) == ("MISS", False)

        idle = await running.ask(creativeness=5)
        assert (idle.headers["X-Cache"], DROPPED in idle.headers) == ("HIT", False)

        asked = await running.ask(creativeness=9)
        assert asked.json["creativeness"] == 9, "what was asked is echoed"
        assert asked.headers["X-Cache"] == "MISS", "it is part of the cache's key"
        assert asked.headers[DROPPED] == "creativeness"
        assert all("creativeness" not in each.json for each in upstream.requests)

        near = await running.ask(creativenes=9)
        assert near.headers[DROPPED] == "creativenes", "a slip is noticed"

        document = (await fetch(running.http, "GET", f"{running.url}/openapi.json")).json
        schemas = document["components"]["schemas"]
        for name in ("CreateResponse", "CompactResponse", "CreatePrompt"):
            described = schemas[name]["properties"]["creativeness"]
            assert described["maximum"] == 10, described
            assert described["description"] == "How far it may go."

        prompt = await fetch(
            running.http, "POST", f"{running.url}/v1/prompts", json={"name": "p", "creativeness": 0}
        )
        assert prompt.json["error"]["param"] == "creativeness"


print(router.__file__)
asyncio.run(main())
"""


def test_a_field_is_added_in_one_place(tmp_path: Path) -> None:
    table = copied(tmp_path) / TABLE
    text = table.read_text()
    assert text.count(BEGINS) == 1
    table.write_text(text.replace(BEGINS, BEGINS + ADDED))
    run_in(tmp_path, ASKS)


def test_every_field_is_declared_once() -> None:
    names = [field.name for field in fields.FIELDS]
    assert len(names) == len(set(names))
    assert not [f.name for f in fields.FIELDS if f.shown is not None and f.echo == "never"]
    assert all(f.owner == "router" for f in fields.FIELDS if f.origin == "router")
