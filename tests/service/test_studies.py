"""Studies on a collector: stages that follow each other, one answer per person, terms that never change."""

import json
import secrets

import numpy as np
import pytest

pytest.importorskip("fastapi")

from sstq.studies import Range, Words
from tests.patience import until
from tests.service.studying import (
    begin,
    classifier,
    next_stage,
    panel,
    stage_of,
    through_the_library,
    values_of,
    whole,
    words,
)

KINDS = {
    "words": (words, 2000),
    "range": (lambda: Range(dim=3, epsilon=6.0), 4000),
    "panel": (panel, 600),
    "classifier": (classifier, 1500),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_answers_give_the_same_result_to_the_last_bit(server, kind, tmp_path):
    make, people = KINDS[kind]
    study = make()
    limits = {"hours": 0.0008} if kind == "panel" else {}
    name = f"same-{kind}"
    assert (
        begin(server, name, study, people, readers="public", **limits).status_code
        == 201
    )
    sent = whole(
        server, name, study, lambda campaign: campaign.stage.people or people // 3
    )
    sizes = [stage["people"] for stage in server.status(name)["study"]["stages"]]
    expected, result = through_the_library(study.to_json(), sizes, sent)
    found = server.administer("GET", f"/v1/campaigns/{name}/estimate").json()
    assert found["final"]
    assert (found["count"], found["result"]) == (sum(map(len, sent)), result)
    assert not expected.cohorts_left
    assert found["study"]["state"] == "ended"
    assert [stage["state"] for stage in found["study"]["stages"]] == ["learned"] * len(
        sent
    )


def test_a_full_stage_asks_nobody_and_takes_what_is_on_its_way(server):
    """Whoever was asked while there was room has spent ε by now: the stage is closed some rounds later."""
    begin(server, "race", words(), 40)
    stage = stage_of(server, "race")
    people = stage.stage.people
    messages = stage.question.encode(["tea"] * (people + 4))
    token = server.sender("race")

    def send(some):
        return server.send(
            stage.name, stage.mechanism, some.to_bytes(), len(some), token=token
        ).status_code

    assert send(messages[: people - 1]) == 200
    for late in range(people - 1, people + 2):
        assert send(messages[late : late + 1]) == 200
    # Nobody else is asked, and no batch is of one person.
    assert server.http.get("/v1/campaigns/race--1/messages").status_code == 410
    assert send(messages[people + 2 :]) == 410
    second = next_stage(server, "race", 2)
    assert send(messages[people + 2 : people + 3]) == 410
    first = server.status("race")["study"]["stages"][0]
    assert (first["people"], first["received"]) == (people, people + 2)
    assert second.stage.people == 40 - people


def test_a_stage_takes_its_people_and_no_more(server):
    study = words()
    begin(server, "full", study, 300)
    first = stage_of(server, "full")
    people = first.stage.people
    messages = first.question.encode(["tea"] * (people + 1))
    token = server.sender("full")
    upload = {"mechanism": first.mechanism, "token": token}
    room = "/v1/campaigns/full--1/messages"
    mine = {"Authorization": f"Bearer {token}"}
    assert server.http.get(room, headers=mine).json() == {"messages": people}
    # Whoever sends one message learns that there is room, not how many people came.
    assert server.http.get(room).json() == {"messages": 1}
    too_many = server.send(
        "full--1", body=messages.to_bytes(), count=people + 1, **upload
    )
    assert (too_many.status_code, too_many.headers["retry-after"]) == (410, "5")
    key = secrets.token_hex(16)
    whole_stage = {
        "body": messages[:people].to_bytes(),
        "count": people,
        "key": key,
        **upload,
    }
    assert server.send("full--1", **whole_stage).json() == {"count": people}
    second = next_stage(server, "full", 2)
    assert second.stage.people == 300 - people
    # A retry of what was acknowledged has the same answer, also after the stage.
    assert server.send("full--1", **whole_stage).json() == {"count": people}
    assert (
        server.send(
            "full--1", first.mechanism, messages[:1].to_bytes(), 1, token=token
        ).status_code
        == 410
    )
    assert server.status("full")["study"]["stages"][0]["received"] == people
    assert server.status("full")["received"] == people


def test_uploads_go_to_a_stage_and_not_to_the_study(server):
    """With its name alone a retry would count again in the next stage."""
    begin(server, "direct", words(), 300)
    stage = stage_of(server, "direct")
    body = stage.question.encode(["tea"]).to_bytes()
    answer = server.send("direct", stage.mechanism, body, 1)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "This is a study: send to its stage, direct--1.",
    )
    assert server.http.get("/v1/campaigns/direct/messages").status_code == 409


def test_a_single_use_token_is_spent_for_the_study(server):
    begin(server, "tokens", words(), 2, senders="single-use", least=1)
    made = server.administer(
        "POST", "/v1/campaigns/tokens/tokens", json={"count": 4}
    ).json()["tokens"]
    first = stage_of(server, "tokens")

    def send(campaign, token):
        body = campaign.question.encode(["tea"]).to_bytes()
        return server.send(campaign.name, campaign.mechanism, body, 1, token=token)

    assert server.administer(
        "GET", "/v1/campaigns/tokens--1/messages", token=made[0]
    ).json() == {"messages": 1}
    assert send(first, made[0]).json() == {"count": 1}
    second = next_stage(server, "tokens", 2)
    assert send(second, made[0]).status_code == 403
    assert server.administer(
        "GET", "/v1/campaigns/tokens--2/messages", token=made[0]
    ).json() == {"messages": 0}
    counts = server.status("tokens")
    assert (counts["tokens_issued"], counts["tokens_unspent"]) == (4, 3)
    assert send(second, made[1]).json() == {"count": 1}


def test_tokens_of_another_study_are_worth_nothing(server):
    mine, other = (
        begin(server, name, words(), 300, senders="token").json()["send_token"]
        for name in ("mine", "other")
    )
    stage = stage_of(server, "mine")
    body = stage.question.encode(["tea"]).to_bytes()
    answer = server.send("mine--1", stage.mechanism, body, 1, token=other)
    assert answer.status_code == 403
    paid = server.send("mine--1", stage.mechanism, body, 1, token=mine)
    assert paid.json() == {"count": 1}


def test_a_stage_that_is_over_cannot_be_opened_again(server):
    begin(server, "all-there", words(), 300)
    first = stage_of(server, "all-there")
    token = server.sender("all-there")
    messages = first.question.encode(["tea"] * (first.stage.people + 1))
    most = messages[: first.stage.people]
    assert (
        server.send(
            "all-there--1", first.mechanism, most.to_bytes(), len(most), token=token
        ).status_code
        == 200
    )
    second = next_stage(server, "all-there", 2)
    before = server.status("all-there")["study"]["stages"]
    for name, change in (
        ("all-there--1", {"closed": False}),
        ("all-there--1", {"closes": "2100-01-01T00:00:00Z"}),
        ("all-there", {"closed": False}),
        ("all-there", {"people": 600}),
        ("all-there", {"opens": "2020-01-01T00:00:00Z"}),
    ):
        answer = server.administer("PATCH", f"/v1/campaigns/{name}", json=change)
        assert answer.status_code in (409, 422), answer.text
    late = messages[len(most) :].to_bytes()
    answer = server.send("all-there--1", first.mechanism, late, 1, token=token)
    assert (answer.status_code, answer.headers["retry-after"]) == (410, "5")
    assert server.status("all-there")["study"]["stages"] == before
    # The link leads to the open stage only, and a study that ended stays ended.
    assert stage_of(server, "all-there") == second
    server.administer("PATCH", "/v1/campaigns/all-there", json={"closed": True})
    again = begin(server, "all-there", words(), 300)
    assert again.status_code == 409
    assert server.status("all-there")["status"] == "closed"


def test_terms_never_change_and_stages_cannot_be_touched(server):
    begin(server, "frozen", words(), 300, readers="administrator")
    before = server.http.get("/v1/campaigns/frozen").content
    for terms in ({"people": 2}, {"hours": 1}, {"too_few": "end"}, {"least": 0.1}, {"senders": "token"}, {"study": {}},
                  {"closes": "2100-01-01T00:00:00Z"}, {"most_messages": 5}, {"stage": {}}):  # fmt: skip
        answer = server.administer("PATCH", "/v1/campaigns/frozen", json=terms)
        assert answer.status_code == 409, answer.text
        assert "the terms of a study never change" in answer.text
    for change in (
        {"closed": True},
        {"readers": "public"},
        {"closes": "2100-01-01T00:00:00Z"},
        {"people": 1},
    ):
        answer = server.administer("PATCH", "/v1/campaigns/frozen--1", json=change)
        assert answer.status_code == 409, answer.text
    assert server.administer("DELETE", "/v1/campaigns/frozen--1").status_code == 409
    assert server.http.get("/v1/campaigns/frozen").content == before
    # Nobody else gets the name of a stage, or a document that says to be one.
    campaign = json.loads(before)
    mechanism = campaign["mechanism"]
    for content in (
        {"name": "frozen--2"},
        {"name": "other", "stage": campaign["stage"]},
    ):
        answer = server.administer(
            "POST", "/v1/campaigns", json={"mechanism": mechanism, **content}
        )
        assert answer.status_code in (409, 422), answer.text
    again = begin(server, "frozen", words(), 300)
    assert again.status_code == 409
    # Who may read may change, and whose pages may send: also to the stage that runs.
    change = {"readers": "public", "origins": ["https://poll.example"]}
    assert (
        server.administer("PATCH", "/v1/campaigns/frozen", json=change).status_code
        == 200
    )
    assert server.http.get("/v1/campaigns/frozen/estimate").json()["result"] is None
    allowed = server.http.options(
        "/v1/campaigns/frozen--1/messages", headers={"Origin": "https://poll.example"}
    )
    assert allowed.headers["access-control-allow-origin"] == "https://poll.example"


def test_one_study_runs_under_one_name(server):
    study = words()
    assert begin(server, "once-a", study, 300).status_code == 201
    answer = begin(server, "once-b", study, 300)
    assert (
        answer.status_code,
        "must be another one than once-a has" in answer.text,
    ) == (422, True)
    study.question(30)
    assert "nobody was asked in" in begin(server, "once-b", study, 300).text


@pytest.mark.parametrize(
    ("study", "terms", "wrong"),
    [
        (words, {"people": 0}, "people must be an integer"),
        (words, {"people": 10, "hours": 0}, "hours must be a number"),
        (words, {"people": 10, "too_few": "later"}, "too_few must be"),
        (words, {"people": 10, "least": 0}, "least must be"),
        (
            words,
            {"people": 10, "closes": "2100-01-01T00:00:00Z"},
            "a term of a study must be",
        ),
        (panel, {"people": 10}, "hours must be given: how long a period lasts"),
        (
            lambda: Words(2.0, trust="shuffler"),
            {"people": 10_000},
            "shuffling must be given",
        ),
    ],
)
def test_a_study_that_cannot_run_is_refused(server, study, terms, wrong):
    answer = server.administer(
        "POST",
        "/v1/campaigns",
        json={"name": "wrong", "study": json.loads(study().to_json()), **terms},
    )
    assert (answer.status_code, wrong in answer.text) == (422, True), answer.text
    assert server.http.get("/v1/campaigns/wrong").status_code == 404


def test_too_few_people_wait_or_end_the_study_as_its_terms_say(server):
    for too_few in ("wait", "end"):
        begin(
            server,
            f"few-{too_few}",
            words(),
            100,
            hours=0.0003,
            too_few=too_few,
            readers="public",
        )
        stage = stage_of(server, f"few-{too_few}")
        body = stage.question.encode(["tea"] * 3).to_bytes()
        server.send(
            stage.name, stage.mechanism, body, 3, token=server.sender(f"few-{too_few}")
        )
    ended = until(
        lambda: (found := server.status("few-end"))["status"] == "closed" and found
    )["study"]
    assert (ended["state"], ended["note"]) == (
        "ended",
        "too few people came to “letters 1 to 3”",
    )
    assert [stage["state"] for stage in ended["stages"]] == ["dropped"]
    answer = server.http.get("/v1/campaigns/few-end--1/messages")
    assert (answer.status_code, answer.headers.get("retry-after")) == (410, None)
    waiting = until(
        lambda: (
            (found := server.status("few-wait")["study"])["state"] == "waiting"
            and found
        )
    )
    assert "fewer than 30 people came" in waiting["note"]
    # Once enough came, the stage ends, also without all.
    stage = stage_of(server, "few-wait")
    body = stage.question.encode(["tea"] * 30).to_bytes()
    assert (
        server.send(
            stage.name, stage.mechanism, body, 30, token=server.sender("few-wait")
        ).status_code
        == 200
    )
    assert next_stage(server, "few-wait", 2).stage.people == 100 - stage.stage.people
    first = server.status("few-wait")["study"]["stages"][0]
    assert (first["received"], first["state"], first["people"]) == (
        33,
        "learned",
        stage.stage.people,
    )


def test_readers_see_what_is_released_and_nothing_of_a_stage(server):
    study = words()
    begin(server, "read", study, 2000, readers="public")
    stage = stage_of(server, "read")
    token = server.sender("read")
    rest = stage.question.encode(
        values_of(study, stage.stage.people, np.random.default_rng(1))
    )
    server.send(stage.name, stage.mechanism, rest[:27].to_bytes(), 27, token=token)
    seen = server.http.get("/v1/campaigns/read/status").json()
    assert (
        seen["study"]["stages"][0]["received"],
        seen["received"],
        seen["tokens_issued"],
    ) == (20, 20, None)
    assert server.status("read")["received"] == 27
    server.send(
        stage.name, stage.mechanism, rest[27:].to_bytes(), len(rest) - 27, token=token
    )
    next_stage(server, "read", 2)
    public = server.http.get("/v1/campaigns/read/estimate").json()
    owner = server.administer("GET", "/v1/campaigns/read/estimate").json()
    assert public["result"] == owner["result"] | {"prefixes": None}
    assert {"wat", "lem"} <= set(owner["result"]["prefixes"])
    assert "tea" in public["result"]["word"]
    assert not public["final"]
    for path in ("estimate", "status", "progress"):
        assert server.http.get(f"/v1/campaigns/read--1/{path}").status_code == 401
    listed = [
        row["name"]
        for row in server.administer("GET", "/v1/campaigns").json()["campaigns"]
    ]
    assert "read" in listed
    assert not any("--" in name for name in listed)
    rows = server.http.get("/v1/campaigns/read/estimate?format=csv").text.splitlines()
    assert rows[0] == "word,share,stderr,low,high"
    assert rows[1].startswith("tea,")


def test_an_administrator_ends_and_deletes_a_study(server):
    begin(server, "gone", words(), 300)
    assert (
        server.administer(
            "PATCH", "/v1/campaigns/gone", json={"closed": True}
        ).status_code
        == 200
    )
    found = server.status("gone")
    assert (found["status"], found["study"]["note"]) == (
        "closed",
        "ended by its administrator",
    )
    assert server.http.get("/v1/campaigns/gone--1/messages").status_code == 410
    assert server.administer("DELETE", "/v1/campaigns/gone").status_code == 204
    for name in ("gone", "gone--1"):
        assert server.http.get(f"/v1/campaigns/{name}").status_code == 404
