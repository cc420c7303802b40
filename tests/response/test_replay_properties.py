"""Whatever an answer holds: its replay is in order and adds up to it."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router.response.replay import replay
from tests.support.answers import (
    CITATION,
    LOGPROBS,
    answer,
    call,
    custom,
    message,
    reasoning,
    refusal,
    text,
    without_ids,
)
from tests.support.reading import FUZZ, decoded, make_builder
from tests.support.rebuilding import rebuilt

MORE = settings(FUZZ, max_examples=150)

TEXTS = st.one_of(
    st.text(max_size=60), st.lists(st.sampled_from(["Hi", " ", "wörld ", "世"])).map("".join)
)
PARTS = st.one_of(
    st.builds(
        lambda value, annotations, logprobs: text(
            value, annotations=annotations, logprobs=logprobs
        ),
        TEXTS,
        st.sampled_from([[], [CITATION], [CITATION, CITATION]]),
        st.sampled_from([[], [], LOGPROBS]),
    ),
    st.builds(refusal, TEXTS),
    st.builds(text, st.just("Hi you"), logprobs=st.just(LOGPROBS)),
)
SEVERAL = st.lists(TEXTS, max_size=3).map(tuple)
ITEMS = st.one_of(
    st.builds(lambda parts: message(*parts), st.lists(PARTS, max_size=3)),
    st.builds(lambda parts: message(*parts, phase="final_answer"), st.lists(PARTS, max_size=1)),
    st.builds(reasoning, SEVERAL, st.one_of(st.none(), SEVERAL)),
    st.builds(reasoning, SEVERAL, encrypted_content=st.just("blob")),
    st.builds(call, TEXTS.filter(str.strip)),
    st.builds(custom, TEXTS),
    st.just({"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {}}),
    st.just({"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "s", "tools": []}),
    st.builds(
        lambda arguments: {
            "id": "mcp_1",
            "type": "mcp_call",
            "status": "completed",
            "server_label": "s",
            "name": "f",
            "arguments": arguments,
        },
        TEXTS,
    ),
)


def numbered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items, each with an id of its own."""
    return [{**item, "id": f"{item['id']}_{place}"} for place, item in enumerate(items)]


@MORE
@given(st.lists(ITEMS, max_size=5).map(numbered))
def test_the_deltas_add_up_to_the_answer(items: list[dict[str, Any]]) -> None:
    made = answer(*items, hidden={item["id"]: str(n) for n, item in enumerate(items)})
    before = copy.deepcopy(made)
    played = replay(make_builder(), made)
    final = rebuilt(decoded(played.frames))
    assert final == played.final == replay(make_builder(muted=True), made).final
    assert without_ids(final["output"]) == without_ids(items)
    assert [played.encrypted_reasoning[item["id"]] for item in final["output"]] == list(
        made["hidden"].values()
    )
    assert len({item["id"] for item in final["output"]}) == len(items)
    assert made == before
