"""The telegraph, for endpoints and for clients."""

from __future__ import annotations

from typing import Final

from router.dialects.dialect import ApiRoute, ClientApi, EndpointDialect
from router.dialects.operation import AnswerKind, Operation

from .decode_request import decode_request
from .decode_stream import TelegraphDecoder
from .encode_request import encode_request
from .schema import TELEGRAM

__all__ = ["API", "ENDPOINT"]

ENDPOINT: Final = EndpointDialect(encode_request, TelegraphDecoder, "/stations")
API: Final = ClientApi(
    routes=[
        ApiRoute(
            "/telegram", Operation("telegram", AnswerKind.RESPONSE, translated=True), decode_request
        )
    ],
    form=lambda request_id: TELEGRAM,
    prefixes=["/telegraph"],
)
