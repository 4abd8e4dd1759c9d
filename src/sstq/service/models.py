"""What the OpenAPI document says of the JSON of the HTTP interface.

All are models, from which schemas are made. Bodies are checked by `sstq.service.terms` and `sstq.client.campaigns`.
"""

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from sstq.client.campaigns import MOST_PEOPLE, NAME_PATTERN, Readers, Senders
from sstq.service.security import MEDIA_TYPE
from sstq.service.terms import Renewable, TooFew

CampaignName = Annotated[str, Path(alias="name", pattern=f"^{NAME_PATTERN}$")]
_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
_Time = Annotated[str, Field(examples=["2027-01-31T18:00:00Z"])]
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


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True
    )


class _Terms(_Model):
    labels: list[str]
    group_labels: list[str]
    image_shape: list[int]
    opens: _Time
    closes: _Time
    most_messages: int
    senders: Senders
    readers: Readers
    origins: list[str]
    """Origins of web pages that may send; * for any."""
    release_every: Annotated[int, Field(ge=1, le=MOST_PEOPLE)]
    """Readers see a new estimate after this many messages at least."""


class NewCampaign(_Terms):
    """What creates a campaign or a study; all but the name may be left out."""

    name: _Name
    mechanism: dict[str, Any]
    """What `sstq spec` writes."""
    shuffling: dict[str, Any]
    """The fields of `sstq.client.Shuffling`."""
    study: dict[str, Any]
    """What `sstq study new` writes, instead of a mechanism."""
    people: int
    """Of a study: how many there are for all stages."""
    hours: float
    """Of a study: how long a stage lasts."""
    least: float
    """Of a study: the share of its people that a stage needs."""
    too_few: TooFew


class Change(_Terms):
    """What changes one; all may be left out."""

    closed: Literal[True]
    """Close the campaign for good."""
    renew: list[Renewable]
    """Replace these."""


def _body(model: type[_Model], **more: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema() | more}}
    return {"requestBody": {"required": True, "content": content}}


NEW_CAMPAIGN = _body(NewCampaign, required=["name"])
"""The body that creates a campaign or a study."""

CHANGE = _body(Change, required=[], minProperties=1)
"""The body that changes one."""


class _Crowd(_Model):
    people: _Count
    """Accepted envelopes of its smallest batch."""
    epsilon: float
    delta: float
    epsilon_if_half_fake: float
    isolating_share: float | None
    """Who holds this share of all single-use tokens could be all of the crowd but one person."""


class Claim(_Model):
    """The (ε, δ) of a shuffled campaign, from the batches that arrived."""

    batches: _Count
    """Opened batches of the shuffler."""
    accepted: _Count
    """Envelopes of these batches that are counted."""
    refused: dict[Literal["foreign", "malformed", "repeated"], _Count]
    crowds: list[_Crowd]
    """What each crowd that was mixed together justifies."""
    local_epsilon: float
    """The ε that remains if the shuffler cheats."""


class StageStatus(_Model):
    """A stage of a study."""

    number: int
    name: str
    people: _Count
    """For how many people it is."""
    received: _Count
    """How many have sent; readers see multiples of release_every."""
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
    epsilon: float
    """A person's total."""
    delta: float | None
    local_epsilon: float
    """Of the newest stage's message, if a shuffler cheats."""
    stages: list[StageStatus]
    next: list[str]
    """What may follow."""


class Status(_Model):
    """A campaign's counts; readers see those of the estimate that was released to them."""

    name: _Name
    status: Literal["scheduled", "open", "closed"]
    received: _Count
    """Acknowledged messages."""
    folded: _Count
    """Messages added to the state."""
    covered: _Count
    """Messages covered by the newest estimate."""
    released: _Count
    """Messages covered by the estimate that readers see."""
    release_every: _Count
    """Readers see a new one after this many more, and 2 % more."""
    tokens_issued: _Count | None
    tokens_unspent: _Count | None
    shuffling: Claim | None
    study: StudyStatus | None = None


class Progress(_Model):
    """The error so far, its prediction, and the arrivals per hour."""

    measured: _Points
    """Pairs: messages, standard error of the estimate."""
    predicted: _Points
    """The same, predicted by the mechanism's typical error."""
    bias: float
    """The error that no number of messages removes."""
    arrivals: _Points
    """Pairs: hour (seconds since 1970), messages folded."""
    epsilon: float
    """The nominal ε of a message."""
    privacy_loss: float
    """The exact privacy loss of a message."""


class _Region(_Model):
    level: float
    radius: float | None
    half_width: _Numbers


class EstimateAnswer(_Model):
    """The newest estimate with the number of messages it covers; unknown values are null."""

    campaign: _Name
    digest: str
    count: _Count
    """Messages covered."""
    shuffling: Claim | None
    value: _Numbers | None
    stderr: _Numbers | None
    region: _Region | None
    """With this probability, value ± half_width covers all coordinates at once."""
    groups: dict[str, _Numbers | list[_Numbers]] | None
    """The shares, sums and means of private groups, each with its stderr."""
    questions: list[dict[str, Any]] | None = None
    """Of a survey: the items of each question with their intervals."""
    note: str
    checks: dict[Literal["norm", "counts"], str] | None = None
    """“passed”, “not tested”, or what is wrong."""


class StudyAnswer(_Model):
    """What a study has found so far."""

    campaign: _Name
    count: _Count
    """People covered."""
    study: StudyStatus
    final: bool
    """Whether nothing more will be learned."""
    result: dict[str, Any] | None
    """By kind, as docs/http-api.md has it."""
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
