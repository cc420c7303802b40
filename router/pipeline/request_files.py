"""What of a request is somewhere else, or in another form than its candidates read: images by URL,
and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from router.core.exchange import Exchange
from router.dialects.input_files import FileForm
from router.endpoints.deployment import Deployment
from router.endpoints.plan import Plan
from router.errors import InvalidRequest
from router.fetch.images import Images
from router.files.requests import RequestFiles

__all__ = ["ContentNeeds", "forms", "get_content"]


class ContentNeeds(NamedTuple):
    """The candidates that need the data of the request's images, if it may have any; and whether
    it has files.
    """

    images: Sequence[Deployment]
    files: bool


async def get_content(
    plan: Plan,
    exchange: Exchange,
    needs: ContentNeeds,
    images: Images,
    files: RequestFiles | None,
) -> InvalidRequest | None:
    """Get it. Candidates for which it cannot be had are left out, and the error is returned; it is
    raised where there are no others.
    """
    failure: InvalidRequest | None = None
    if needs.files and files is not None:
        for form, deployments in forms(plan.deployments, exchange).items():
            try:
                await files.prepare(exchange, form)
            except InvalidRequest as error:
                failure = _without(plan, deployments, failure or error)
    if needs.images:
        try:
            await images.fetch(exchange)
        except InvalidRequest as error:
            failure = _without(plan, needs.images, failure or error)
    return failure


def forms(
    deployments: Iterable[Deployment], exchange: Exchange
) -> dict[FileForm, list[Deployment]]:
    """The candidates by the form in which each is sent files, but for those that get them as they
    came.
    """
    found: dict[FileForm, list[Deployment]] = {}
    for deployment in deployments:
        form = deployment.endpoint.adapter.file_form(exchange, deployment.model)
        if form is not None:
            found.setdefault(form, []).append(deployment)
    return found


def _without(plan: Plan, needing: Iterable[Deployment], error: InvalidRequest) -> InvalidRequest:
    for deployment in needing:
        plan.drop(deployment)
    if not plan.deployments:
        raise error from None
    return error
