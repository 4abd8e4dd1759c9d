"""Studies on a collector: people who answer them, and the same answers through the library."""

import json

import numpy as np

import sstq
from sstq.client.campaigns import read_document
from sstq.service.study_results import described
from sstq.studies import Panel, Range, Study, Words
from tests.patience import until

DRINKS = ["tea", "water", "lemon"]


def words():
    return Words(epsilon=6.0, longest=5)


def panel(periods=3):
    return Panel(sstq.Frequencies(4, 2.0), periods=periods)


def classifier():
    from sstq.learning import PrivateClassifier

    bounds = [[-3.0, 3.0], [-3.0, 3.0]]
    return PrivateClassifier(
        6.0, bounds=bounds, classes=["cat", "dog"], check_people=0.3
    )


def values_of(study, count, rng):
    """What so many people hold."""
    if isinstance(study, Words):
        return rng.choice(DRINKS, count, p=[0.5, 0.3, 0.2]).tolist()
    if isinstance(study, Range):
        return 100.0 * (rng.standard_normal((count, study.options["dim"])) + 4)
    if study.kind == "classifier":
        return [_animal(rng) for _ in range(count)]
    return rng.integers(4, size=count).tolist()


def _animal(rng):
    """What somebody holds who takes part in a classifier: features and a label."""
    label = int(rng.integers(2))
    features = rng.normal(2.0 * label - 1.0, 0.7, 2)
    return features.tolist(), ["cat", "dog"][label]


def begin(server, name, study, people, **terms):
    """Create a study at a collector; returns what that answers."""
    content = {
        "name": name,
        "study": json.loads(study.to_json()),
        "people": people,
        **terms,
    }
    return server.administer("POST", "/v1/campaigns", json=content)


def stage_of(server, name):
    """The campaign of the newest stage."""
    return read_document(server.http.get(f"/v1/campaigns/{name}").content).campaign


def next_stage(server, name, number):
    """The campaign of this stage, once it is there; None if the study ended before."""

    def found():
        campaign = stage_of(server, name)
        if campaign.stage.number == number:
            return campaign
        return "ended" if server.status(name)["status"] == "closed" else None

    campaign = until(found)
    return None if campaign == "ended" else campaign


def whole(server, name, study, people_of=lambda campaign: campaign.stage.people):
    """Answer all stages of a study; returns the messages of each."""
    rng = np.random.default_rng(1)
    sent = []
    token = server.sender(name)
    while (campaign := next_stage(server, name, len(sent) + 1)) is not None:
        people = people_of(campaign)
        messages = campaign.question.encode_each(values_of(study, people, rng))
        answer = server.send(
            campaign.name,
            campaign.mechanism,
            messages.to_bytes(),
            len(messages),
            token=token,
        )
        assert answer.status_code == 200, answer.text
        sent.append(messages)
    return sent


def through_the_library(state, sizes, sent):
    """What a study finds from these messages, stage by stage; `sizes` are for how many people each stage was."""
    study = Study.from_json(state)
    for people, messages in zip(sizes, sent, strict=True):
        study.question(people)
        study.learn(messages)
    return study, json.loads(json.dumps(described(study)))
