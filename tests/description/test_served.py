"""A running router answers as it is described, whatever it is asked.

Requests are made up by schemathesis from the description, always the same ones. None may be
answered with 500, with a status, a header or a content type that is not described, or with a body
that is not as described.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from router.http.description.document import document
from tests.description.test_document import faults
from tests.support.described import ADMIN_KEY, KEY, MODELS, serving

pytestmark = pytest.mark.filterwarnings(
    # What schemathesis itself does.
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)

EXAMPLES: Final = 4
"""Requests for each operation, beside its own example."""

DEADLINE: Final = 20.0
MOST_ANSWERS: Final = 4
CHECKS: Final = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
CONFIG: Final = schemathesis.Config.from_dict(
    {
        "seed": 7,
        "phases": {"coverage": {"enabled": False}, "stateful": {"enabled": False}},
        "generation": {"database": "none"},
    }
)
DESCRIBED: Final = schemathesis.openapi.from_dict(
    document(version="1.2.3", metrics_opened_by="none"), config=CONFIG
)


def whole(value: Any) -> Any:
    """To JSON Schema 1.0 is an integer; to the router, as to OpenAI, it is none."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [whole(each) for each in value]
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    return value


@DESCRIBED.hook
def map_body(context: Any, body: Any) -> Any:
    """Most bodies ask for a model that there is, and not for a stream."""
    body = whole(body)
    if not isinstance(body, dict):
        return body
    chance = hashlib.blake2b(repr(body).encode(errors="replace")).digest()[0]
    if isinstance(body.get("model"), str) and chance % 8:
        body["model"] = MODELS[chance % len(MODELS)]
    if body.get("stream") is not False and chance % 4:
        body["stream"] = False
    for name in ("n", "best_of"):
        if type(body.get(name)) is int:
            body[name] = min(body[name], MOST_ANSWERS)
    return body


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made


def lines_are_as_described(case: schemathesis.Case[Any], response: schemathesis.Response) -> None:
    """The lines of a stream; events are looked at by schemathesis."""
    if not response.headers.get("content-type", [""])[0].startswith("application/x-ndjson"):
        return
    answers = case.operation.definition.raw["responses"]["200"]
    schema = answers["content"]["application/x-ndjson"]["schema"]["x-event-schema"]
    for line in response.content.splitlines():
        assert faults(schema, orjson.loads(line)) == []


@DESCRIBED.include(path_regex=r"^/(?!api/v1/)").parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described(
    case: schemathesis.Case[Any], url: str, session: requests.Session
) -> None:
    keys = {name for each in case.operation.definition.raw["security"] for name in each}
    bearer = ADMIN_KEY if keys == {"adminKey"} else KEY
    response = case.call(
        base_url=url,
        session=session,
        headers={"Authorization": f"Bearer {bearer}"},
        timeout=DEADLINE,
    )
    assert response.status_code != 500, response.text
    case.validate_response(response, checks=CHECKS)
    lines_are_as_described(case, response)
