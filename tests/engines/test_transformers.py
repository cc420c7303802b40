"""``transformers serve`` behind the router: what it answers is what a client gets."""

from __future__ import annotations

import pytest

from router.settings.schema import Dialect
from tests.engines.stand import Engine, Own, in_front_of
from tests.engines.test_llamacpp import CHATS, MOST, QUESTION, STREAMED
from tests.matrix.asking import Ask

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def own(transformers: Engine) -> Own:
    """What the engine itself answers to ``QUESTION``."""
    return transformers.answer(QUESTION.text, MOST)


@STREAMED
@pytest.mark.parametrize("surface", CHATS)
async def test_every_api_says_what_the_engine_says(
    transformers: Engine, own: Own, dialect: Dialect, surface: str, stream: bool
) -> None:
    async with in_front_of(transformers, dialect, models=[transformers.model]) as behind:
        said = await behind.ask(surface, Ask(QUESTION.text, stream=stream), MOST)
    assert said.text == own.text
    assert said.usage == own.usage


async def test_a_list_of_models_that_fails_does_not_make_it_count_as_down(
    transformers: Engine,
) -> None:
    assert transformers.status("/v1/models") == 500, "its list works: this test has had its day"
    async with in_front_of(transformers, "chat", models=[transformers.model]) as behind:
        for _ in range(3):
            said = await behind.ask("Chat Completions", QUESTION, MOST)
            assert said.text
        assert await behind.router.metric("pointsman_endpoint_up", endpoint="engine") == [1.0]
