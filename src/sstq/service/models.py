"""What the OpenAPI document says of the JSON of the HTTP interface.

Bodies are described here and checked by `sstq.service.terms`; answers are models, from which FastAPI makes schemas.
"""

from typing import Annotated, Any, Literal, get_args

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from sstq.client.campaigns import MOST_PEOPLE, NAME_PATTERN, Readers, Senders
from sstq.service.security import MEDIA_TYPE
from sstq.service.terms import RENEWABLE, TooFew

CampaignName = Annotated[str, Path(alias="name", pattern=f"^{NAME_PATTERN}$")]
_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
_TIME = {"type": "string", "examples": ["2027-01-31T18:00:00Z"]}
_Count = Annotated[int, Field(ge=0)]
_Numbers = list[float | None]
_Points = list[Annotated[list[float], Field(min_length=2, max_length=2)]]

optional_token: dict[str, Any] = {"security": [{}, {"HTTPBearer": []}]}
"""For routes that need a token for some campaigns."""

_SAID = {"status": {"type": "integer"}, "detail": {"type": "string"}}
_PROBLEM = {
    "content": {
        MEDIA_TYPE: {
            "schema": {"type": "object", "properties": _SAID, "required": [*_SAID]}
        }
    }
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused; `detail` is a sentence that says why."} | _PROBLEM,
    "5XX": {"description": "Not stored; repeat the request after Retry-After seconds."}
    | _PROBLEM,
}
"""The refusals of all routes."""


def _body(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    } | more
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    }


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


_STRINGS = {"type": "array", "items": {"type": "string"}}
_TERMS = {
    "labels": _STRINGS,
    "group_labels": _STRINGS,
    "image_shape": {"type": "array", "items": {"type": "integer"}},
    "opens": _TIME,
    "closes": _TIME,
    "most_messages": {"type": "integer"},
    "senders": {"enum": [*get_args(Senders)]},
    "readers": {"enum": [*get_args(Readers)]},
    "origins": _STRINGS
    | {"description": "Origins of web pages that may send; * for any."},
    "release_every": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_PEOPLE,
        "description": "Readers see a new estimate after this many messages at least.",
    },
}
NEW_CAMPAIGN = _body(
    _TERMS
    | {
        "name": {"type": "string", "pattern": f"^{NAME_PATTERN}$"},
        "mechanism": {"type": "object", "description": "What `sstq spec` writes."},
        "shuffling": {
            "type": "object",
            "description": "The fields of `sstq.client.Shuffling`.",
        },
        "study": {
            "type": "object",
            "description": "What `sstq study new` writes, instead of a mechanism.",
        },
        "people": {
            "type": "integer",
            "description": "Of a study: how many there are for all stages.",
        },
        "hours": {
            "type": "number",
            "description": "Of a study: how long a stage lasts.",
        },
        "least": {
            "type": "number",
            "description": "Of a study: the share of its people that a stage needs.",
        },
        "too_few": {"enum": [*get_args(TooFew)]},
    },
    required=["name"],
)
"""The body that creates a campaign or a study."""

CHANGE = _body(
    _TERMS
    | {
        "closed": {"const": True, "description": "Close the campaign for good."},
        "renew": {
            "type": "array",
            "items": {"enum": [*RENEWABLE]},
            "description": "Replace these.",
        },
    },
    minProperties=1,
)
"""The body that changes one."""


class _Crowd(_Model):
    people: Annotated[
        _Count, Field(description="Accepted envelopes of its smallest batch.")
    ]
    epsilon: float
    delta: float
    epsilon_if_half_fake: float
    isolating_share: Annotated[
        float | None,
        Field(
            description="Who holds this share of all single-use tokens could be all of the crowd but one person."
        ),
    ]


class Claim(_Model):
    """The (ε, δ) of a shuffled campaign, from the batches that arrived."""

    batches: Annotated[_Count, Field(description="Opened batches of the shuffler.")]
    accepted: Annotated[
        _Count, Field(description="Envelopes of these batches that are counted.")
    ]
    refused: dict[Literal["foreign", "malformed", "repeated"], _Count]
    crowds: Annotated[
        list[_Crowd],
        Field(description="What each crowd that was mixed together justifies."),
    ]
    local_epsilon: Annotated[
        float, Field(description="The ε that remains if the shuffler cheats.")
    ]


class StageStatus(_Model):
    """A stage of a study."""

    number: int
    name: str
    people: Annotated[_Count, Field(description="For how many people it is.")]
    received: Annotated[
        _Count,
        Field(
            description="How many have sent; readers see multiples of release_every."
        ),
    ]
    state: Literal["open", "closed", "learned", "dropped"]
    shuffling: Claim | None


class StudyStatus(_Model):
    """A study: its stages, and what it waits for."""

    kind: str
    identifier: str
    state: Literal["open", "waiting", "learning", "ended", "failed"]
    note: str
    people: _Count
    hours: float | None
    too_few: TooFew
    epsilon: Annotated[float, Field(description="A person's total.")]
    delta: float | None
    local_epsilon: Annotated[
        float, Field(description="Of the newest stage's message, if a shuffler cheats.")
    ]
    stages: list[StageStatus]
    next: Annotated[list[str], Field(description="What may follow.")]


class Status(_Model):
    """A campaign's counts; readers see those of the estimate that was released to them."""

    name: _Name
    status: Literal["scheduled", "open", "closed"]
    received: Annotated[_Count, Field(description="Acknowledged messages.")]
    folded: Annotated[_Count, Field(description="Messages added to the state.")]
    covered: Annotated[
        _Count, Field(description="Messages covered by the newest estimate.")
    ]
    released: Annotated[
        _Count, Field(description="Messages covered by the estimate that readers see.")
    ]
    release_every: Annotated[
        _Count,
        Field(description="Readers see a new one after this many more, and 2 % more."),
    ]
    tokens_issued: _Count | None
    tokens_unspent: _Count | None
    shuffling: Claim | None
    study: StudyStatus | None = None


class Progress(_Model):
    """The error so far, its prediction, and the arrivals per hour."""

    measured: Annotated[
        _Points, Field(description="Pairs: messages, standard error of the estimate.")
    ]
    predicted: Annotated[
        _Points,
        Field(description="The same, predicted by the mechanism's typical error."),
    ]
    bias: Annotated[
        float, Field(description="The error that no number of messages removes.")
    ]
    arrivals: Annotated[
        _Points, Field(description="Pairs: hour (seconds since 1970), messages folded.")
    ]
    epsilon: Annotated[float, Field(description="The nominal ε of a message.")]
    privacy_loss: Annotated[
        float, Field(description="The exact privacy loss of a message.")
    ]


class _Region(_Model):
    level: float
    radius: float | None
    half_width: _Numbers


class EstimateAnswer(_Model):
    """The newest estimate with the number of messages it covers; unknown values are null."""

    campaign: _Name
    digest: str
    count: Annotated[_Count, Field(description="Messages covered.")]
    shuffling: Claim | None
    value: _Numbers | None
    stderr: _Numbers | None
    region: Annotated[
        _Region | None,
        Field(
            description="With this probability, value ± half_width covers all coordinates at once."
        ),
    ]
    groups: Annotated[
        dict[str, _Numbers | list[_Numbers]] | None,
        Field(
            description="The shares, sums and means of private groups, each with its stderr."
        ),
    ]
    questions: Annotated[
        list[dict[str, Any]] | None,
        Field(
            description="Of a survey: the items of each question with their intervals."
        ),
    ] = None
    note: str
    checks: Annotated[
        dict[Literal["norm", "counts"], str] | None,
        Field(description="“passed”, “not tested”, or what is wrong."),
    ] = None


class StudyAnswer(_Model):
    """What a study has found so far."""

    campaign: _Name
    count: Annotated[_Count, Field(description="People covered.")]
    study: StudyStatus
    final: Annotated[bool, Field(description="Whether nothing more will be learned.")]
    result: Annotated[
        dict[str, Any] | None, Field(description="By kind, as docs/http-api.md has it.")
    ]
    note: str


class ShufflerStatus(_Model):
    """The people whose envelopes wait, by crowd, and what the collector has not acknowledged or tried to change.

    Nothing that waits is deleted because of an answer of the collector, or while the clock is doubtful.
    """

    name: str
    status: Literal["scheduled", "open", "closed"]
    threshold: int
    waiting: dict[str, int]
    outgoing: int
    tokens_issued: int
    tokens_unspent: int
    refused_change: str | None
    refused_batch: str | None
    clock_doubtful: bool
