"""The files of `clients/vectors`, and what makes each."""

from tests.clients import (
    campaign_steps,
    envelope_steps,
    public_steps,
    secret_steps,
    survey_steps,
    vector_steps,
    whole_messages,
)
from tests.clients.written import as_text

FILES = {
    "philox.json": public_steps.philox,
    "signs.json": public_steps.signs,
    "columns.json": public_steps.columns,
    "permutations.json": public_steps.permutations,
    "words.json": public_steps.numbers_of_words,
    "frames.json": public_steps.frames,
    "norm.json": vector_steps.norms,
    "flip.json": vector_steps.flips,
    "transform.json": vector_steps.transforms,
    "mixing.json": vector_steps.mixings,
    "selection.json": vector_steps.selections,
    "representation.json": vector_steps.representations,
    "two-level.json": secret_steps.two_level,
    "groups.json": secret_steps.groups,
    "rounding.json": secret_steps.rounding,
    "flat.json": secret_steps.flat,
    "packing.json": secret_steps.packing,
    "mechanisms.json": whole_messages.agreements,
    "messages.json": whole_messages.messages,
    "public-coin.json": whole_messages.public_coin,
    "surveys.json": survey_steps.surveys,
    "campaign.json": campaign_steps.campaign,
    "upload.json": campaign_steps.uploads,
    "envelope.json": envelope_steps.envelopes,
}


def text_of(name):
    """The text of one file."""
    make = FILES[name]
    return as_text(name.removesuffix(".json"), make.__doc__, make())
