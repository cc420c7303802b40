"""When a native endpoint is asked for encrypted reasoning, and what is learned from its refusal."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from router.core.exchange import Exchange, ExchangeRecord
from router.core.upstream import UpstreamCall, account_of
from router.dialects.responses.sealing import seal
from router.errors import UpstreamRejected
from router.settings.schema import EndpointSettings
from router.upstream.responses import ResponsesAdapter
from tests.support.exchanges import an_exchange
from tests.support.native import REASONING_ID, begun, reasoning
from tests.support.reading import make_builder

ASKED = "reasoning.encrypted_content"
REFUSAL = "Encrypted content is not supported with this model."
SETTINGS = EndpointSettings(name="one", url="http://localhost/v1", dialect="responses")


def exchange(*, stored: bool = True, **body: Any) -> Exchange:
    made = an_exchange()
    made.body = {"model": "m", "input": "x", **body}
    # Only whether there is one matters to an adapter.
    made.record = cast(ExchangeRecord, object()) if stored else None
    return made


def call(adapter: ResponsesAdapter, model: str = "m", **body: Any) -> UpstreamCall:
    return adapter.respond(exchange(**body), model, make_builder())


def included(made: UpstreamCall) -> Any:
    return orjson.loads(made.request.body).get("include")


def rejected(
    message: str = REFUSAL, param: str | None = "include", code: str | None = None
) -> UpstreamRejected:
    return UpstreamRejected(message, param=param, code=code)


OTHER = "message.output_text.logprobs"


@pytest.mark.parametrize(
    ("stored", "given", "sent"),
    [
        (True, None, [ASKED]),
        (True, [], [ASKED]),
        (True, [OTHER], [OTHER, ASKED]),
        (True, [ASKED, OTHER], [ASKED, OTHER]),
        (False, None, None),
        (False, [OTHER], [OTHER]),
        (False, [ASKED], [ASKED]),
    ],
)
def test_what_is_asked_for(stored: bool, given: Any, sent: Any) -> None:
    made = call(ResponsesAdapter(SETTINGS), stored=stored, include=given)
    assert included(made) == sent
    assert made.retry is not None
    assert made.retry(rejected()) == (sent is not None and sent != given)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("given", [None, [OTHER], [ASKED]])
def test_who_sees_it(stored: bool, given: Any) -> None:
    """Who asked; also where an endpoint sends it without being asked."""
    made = call(ResponsesAdapter(SETTINGS), stored=stored, include=given)
    body = made.decoder.whole(orjson.dumps(begun(status="completed", output=[reasoning("blob")])))
    sealed = seal("blob", account_of(SETTINGS))
    asked = given == [ASKED]
    assert orjson.loads(body)["output"][0].get("encrypted_content") == (sealed if asked else None)
    assert made.decoder.encrypted_reasoning == ({} if asked else {REASONING_ID: sealed})


def test_a_refusal_is_learned_for_the_model() -> None:
    adapter = ResponsesAdapter(SETTINGS)
    refused = call(adapter)
    assert refused.retry is not None
    assert refused.retry(rejected())
    again = call(adapter, include=[OTHER])
    assert included(again) == [OTHER]
    assert again.retry is not None
    assert not again.retry(rejected())
    assert included(call(adapter, "another")) == [ASKED]
    assert included(call(ResponsesAdapter(SETTINGS))) == [ASKED]
    # A client that asks for it itself gets the endpoint's refusal.
    own = call(adapter, include=[ASKED])
    assert included(own) == [ASKED]
    assert own.retry is not None
    assert not own.retry(rejected())


def test_requests_that_are_refused_at_the_same_time() -> None:
    adapter = ResponsesAdapter(SETTINGS)
    calls = [call(adapter), call(adapter)]
    assert [made.retry(rejected()) for made in calls if made.retry] == [True, True]
    assert included(call(adapter)) is None


def test_what_is_learned_is_bounded() -> None:
    adapter = ResponsesAdapter(SETTINGS)
    for number in range(3000):
        made = call(adapter, f"m{number}")
        assert made.retry is not None
        assert made.retry(rejected())
    known = [n for n in range(3000) if included(call(adapter, f"m{n}")) is None]
    assert 100 < len(known) < 2000
    assert known[-1] == 2999


LISTED = f"Invalid value: 'bogus'. Supported values are: '{OTHER}' and '{ASKED}'."
FASTAPI = (
    '[{"type":"literal_error","loc":["body","include",0],"msg":"Input should be \'a\'",'
    f'"input":"{ASKED}"}}]'
)


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (rejected(), None),
        (rejected(), [OTHER]),
        (rejected(param=None), None),
        (rejected(param=None), [OTHER]),
        (rejected("Unknown parameter: 'include'."), None),
        (rejected(f"Invalid value: '{ASKED}'.", "include[0]"), None),
        (rejected(f"Invalid value: '{ASKED}'. Supported values are: 'x'.", "include[1]"), [OTHER]),
        (rejected(f"Invalid value: '{ASKED}'. Supported values are: 'x'."), [OTHER]),
        (rejected(f"'{ASKED}' is unsupported.", None), [OTHER]),
        (rejected(FASTAPI, None), None),
    ],
)
def test_what_is_a_refusal(error: UpstreamRejected, given: Any) -> None:
    made = call(ResponsesAdapter(SETTINGS), include=given)
    assert made.retry is not None
    assert made.retry(error)


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (rejected("Too long.", None, "context_length_exceeded"), None),
        (rejected("Invalid value.", "input[0].content"), None),
        (rejected("The encrypted content could not be verified.", None), None),
        (rejected(REFUSAL, None, "invalid_encrypted_content"), None),
        (rejected(REFUSAL, "input[3].encrypted_content"), None),
        (rejected("Your messages must include the word 'json'.", "input"), None),
        (rejected("Your messages must include the word 'json'.", None), None),
        # What the client itself wants included is at fault.
        (rejected(LISTED, "include[0]"), ["bogus"]),
        (rejected(LISTED, "include"), ["bogus"]),
        (rejected(LISTED, None), ["bogus"]),
        (rejected("Invalid value: 'bogus'.", "include"), ["bogus"]),
        (rejected(FASTAPI.replace("'a'", ASKED), None), ["bogus"]),
    ],
)
def test_what_is_none(error: UpstreamRejected, given: Any) -> None:
    """A model's encrypted reasoning is not given up for the fault of one request."""
    adapter = ResponsesAdapter(SETTINGS)
    made = call(adapter, include=given)
    assert made.retry is not None
    assert not made.retry(error)
    assert included(call(adapter)) == [ASKED]


def test_compacting() -> None:
    adapter = ResponsesAdapter(SETTINGS)
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": seal("x", "another")}
    own = {"type": "compaction", "encrypted_content": seal("x", account_of(SETTINGS))}
    made = adapter.compact(exchange(input=[own]), "served", make_builder())
    assert (made.request.path, made.request.stream) == ("/responses/compact", False)
    assert made.response_headers == {}
    sent = {"type": "compaction", "encrypted_content": "x"}
    assert orjson.loads(made.request.body) == {"model": "served", "input": [sent]}
    lossy = adapter.compact(exchange(input=[foreign, own]), "served", make_builder())
    assert lossy.response_headers == {"X-Pointsman-Reasoning-Dropped": "1"}
