"""The files of `clients/vectors` that the library writes, and those of single steps, which never change."""

from tests.clients import campaign_steps, envelope_steps, survey_steps, whole_messages
from tests.clients.written import as_text

FILES = {
    "mechanisms.json": whole_messages.agreements,
    "messages.json": whole_messages.messages,
    "public-coin.json": whole_messages.public_coin,
    "surveys.json": survey_steps.surveys,
    "campaign.json": campaign_steps.campaign,
    "upload.json": campaign_steps.uploads,
    "envelope.json": envelope_steps.envelopes,
}
# The JavaScript client goes through these steps to the messages that the library sends.
STEPS = (
    "columns",
    "flat",
    "flip",
    "frames",
    "groups",
    "mixing",
    "norm",
    "packing",
    "permutations",
    "philox",
    "representation",
    "rounding",
    "selection",
    "signs",
    "transform",
    "two-level",
    "words",
)


def text_of(name):
    """The text of one file."""
    make = FILES[name]
    return as_text(name.removesuffix(".json"), make.__doc__, make())
