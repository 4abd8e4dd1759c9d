"""The routes that a collector and a shuffler both have: health, metrics, the key, documents, tokens and uploads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.responses import PlainTextResponse, Response

from sstq.client.campaigns import MOST_TOKENS
from sstq.service.collector import Collector
from sstq.service.models import CampaignName, optional_token
from sstq.service.node import Node, RunningCampaign
from sstq.service.observing import check_health
from sstq.service.security import Problem, new_token, token_hash, unauthorized
from sstq.service.uploads import ALLOW_ANY_ORIGIN, UPLOADS

_bearer = HTTPBearer(
    auto_error=False,
    description="A token of the administrator, of readers or of senders.",
)


async def _token(
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str | None:
    return None if given is None else given.credentials


Token = Annotated[str | None, Depends(_token)]
"""The token that came with a request, if any."""


class _AdministratorRoute(APIRoute):
    """A route that asks for the administrator's token before it reads a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def authenticated(request: Request) -> Response:
            _check_administrator(request, await _token(await _bearer(request)))
            return await answer(request)

        return authenticated


def _check_administrator(request: Request, token: str | None) -> None:
    if token is None:
        raise unauthorized("This needs the administrator's token.")
    if not request.app.state.node.is_administrator(token):
        raise Problem(403, "The token is not the administrator's.")


def administrator_router() -> APIRouter:
    """A router whose routes need the administrator's token."""
    return APIRouter(route_class=_AdministratorRoute, dependencies=[Depends(_bearer)])


async def here(request: Request) -> Any:
    """The node that answers a request."""
    return request.app.state.node


Here = Annotated[Node, Depends(here)]
"""The node that answers a request."""
TheCollector = Annotated[Collector, Depends(here)]
"""The same, of routes that only a collector has."""


async def _named(node: Here, name: CampaignName) -> RunningCampaign:
    return await node.entry(name)


Named = Annotated[RunningCampaign, Depends(_named)]
"""The campaign of a route's path."""

NOT_MODIFIED = {"description": "The client has this version already."}
BINARY = {"schema": {"type": "string", "format": "binary"}}
BINARY_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": BINARY}}
}
"""For routes whose body is bytes."""


router = APIRouter()
"""What anybody may read, and the metrics."""
administration = administrator_router()
"""How the administrator deletes campaigns and creates tokens."""


@router.head("/health", include_in_schema=False)  # some balancers ask like this
@router.get("/health")
async def health(node: Here) -> dict[str, str]:
    """Check that the service can store; otherwise the answer is 503."""
    check_health(node.store)
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(node: Here, request: Request, token: Token) -> Response:
    """Read the metrics for Prometheus, with the administrator's or the metrics token."""
    if not node.may_read_metrics(token):
        _check_administrator(request, token)
    text = await asyncio.to_thread(generate_latest, node.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/v1/key")
async def key(node: Here) -> dict[str, str]:
    """Read the public keys of this service: `key` signs campaigns and is pinned, a shuffler has `sealing_key`."""
    return node.public_keys


@router.get(
    "/v1/campaigns/{name}",
    responses={304: NOT_MODIFIED},
    response_model=dict[str, Any],
)
async def document(node: Here, entry: Named, request: Request) -> Response:
    """Fetch a campaign's signed document in canonical JSON (RFC 8785); SSTQ-Signature is Ed25519 over its bytes."""
    headers = {
        "ETag": entry.etag,
        "Cache-Control": "no-cache",
        **node.signatures(entry),
        **ALLOW_ANY_ORIGIN,
    }
    if entry.is_study and not node.goes_on(entry.name):
        headers["SSTQ-Study"] = "ended"
    if matches(request, entry.etag):
        return Response(status_code=304, headers=headers)
    return Response(entry.document, headers=headers, media_type="application/json")


@administration.delete("/v1/campaigns/{name}", status_code=204)
def delete(node: Here, entry: Named) -> None:
    """Delete a campaign and everything of it that is stored here; of a study also all of its stages."""
    refuse_stage(entry)
    node.delete(entry)


@administration.post("/v1/campaigns/{name}/tokens", status_code=201)
def tokens(
    node: Here,
    entry: Named,
    count: Annotated[int, Body(embed=True, ge=1, le=MOST_TOKENS, strict=True)],
) -> Any:
    """Create single-use tokens, of which only the hashes are stored."""
    if entry.campaign.shuffling is not None and node.role != "shuffler":
        raise Problem(
            409,
            f"Envelopes go to the shuffler: create tokens at {entry.campaign.shuffling.url}.",
        )
    if entry.campaign.senders != "single-use":
        raise Problem(
            409,
            "The campaign does not use single-use tokens; create one with --senders single-use.",
        )
    made = [new_token() for _ in range(count)]
    node.store.issue(entry.stored.payer, [token_hash(token) for token in made])
    return {"tokens": made}


def upload_routes(upload: str) -> APIRouter:
    """The description of uploads, which `sstq.service.uploads` answers; `upload` describes their body."""
    router = APIRouter()

    @router.get(
        UPLOADS, response_model=dict[str, int | None], openapi_extra=optional_token
    )
    async def allowance(name: CampaignName) -> Response:  # noqa: ARG001
        """Ask how many messages a token still pays for; null without a limit, 410 if the campaign is closed."""
        raise AssertionError(
            "answered by sstq.service.uploads.Uploads; this only describes it"
        )

    @router.post(
        UPLOADS,
        description=f"{upload} Sending again with the same key counts once and gets the same answer.",
        response_model=dict[str, int],
        openapi_extra=optional_token | BINARY_BODY,
    )
    async def send(  # its arguments are those that the document describes
        name: CampaignName,  # noqa: ARG001
        key: Annotated[  # noqa: ARG001
            str,
            Header(
                alias="Idempotency-Key",
                pattern="^[0-9a-f]{32}$",
                description="128 random bits, new for each upload and repeated in its retries.",
            ),
        ],
        count: Annotated[int, Header(alias="SSTQ-Count", ge=1, le=9_999_999_999)],  # noqa: ARG001
        digest: Annotated[str, Header(alias="SSTQ-Digest", pattern="^[0-9a-f]{64}$")],  # noqa: ARG001
    ) -> Response:
        raise AssertionError(
            "answered by sstq.service.uploads.Uploads; this only describes it"
        )

    return router


def refuse_stage(entry: RunningCampaign) -> None:
    """Raise a Problem for a stage of a study: only the study itself may be changed."""
    if entry.is_stage:
        raise Problem(
            409,
            f"A stage never changes by itself: name the study, {entry.stored.study}.",
        )


def matches(request: Request, etag: str) -> bool:
    """Whether the client has this version."""
    wanted = [
        tag.strip().removeprefix("W/")
        for tag in request.headers.get("if-none-match", "").split(",")
    ]
    return etag in wanted or wanted == ["*"]
