"""The wire: every status with its sentence, keys that count once, and nothing malformed that counts."""

import base64
import io
import json
import re

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import read_document
from sstq.client.signing import verify
from tests.service.serving import ADMINISTRATOR, packed

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
GROUPED = sstq.GroupUnit(dim=3, epsilon=4.0, groups=2)


@pytest.fixture(scope="module")
def server(server):
    server.create(
        "open", MECHANISM, most_messages=50, readers="public", senders="token"
    )
    server.create("early", MECHANISM, opens="2999-01-01T00:00:00Z")
    server.create("over", MECHANISM, closes="2020-01-01T00:00:00Z")
    return server


@pytest.mark.parametrize(
    ("name", "changes", "body", "status", "sentence"),
    [
        ("none", {}, None, 404, "There is no campaign with this name."),
        (
            "open",
            {"Content-Type": "text/plain"},
            None,
            415,
            "Content-Type must be application/octet-stream",
        ),
        ("open", {"Content-Encoding": "gzip"}, None, 415, "without a Content-Encoding"),
        (
            "open",
            {"Idempotency-Key": "5"},
            None,
            400,
            "Idempotency-Key must be 32 hexadecimal digits",
        ),
        (
            "open",
            {"SSTQ-Count": "0"},
            None,
            400,
            "SSTQ-Count must be the number of messages",
        ),
        ("open", {"SSTQ-Count": "51"}, None, 413, "at most 50 messages, got 51"),
        (
            "open",
            {"SSTQ-Digest": "ab"},
            None,
            400,
            "SSTQ-Digest must be the digest of the mechanism",
        ),
        (
            "open",
            {"SSTQ-Digest": "0" * 64},
            None,
            409,
            "The messages come from another mechanism",
        ),
        (
            "open",
            {},
            b"\x00" * 1000,
            422,
            "5 messages of 9 bits take 6 bytes, got 1000",
        ),
        ("open", {}, b"\x00" * 5, 422, "5 messages of 9 bits take 6 bytes, got 5"),
        ("open", {}, b"\x00" * 7, 422, "5 messages of 9 bits take 6 bytes, got 7"),
        ("open", {}, b"\xff" * 6, 422, "The messages are malformed: the last 3 bits"),
        (
            "open",
            {"Authorization": None},
            None,
            401,
            "Sending to this campaign needs a token",
        ),
        *(
            (
                "open",
                {"Authorization": wrong},
                None,
                401,
                "The Authorization header must be “Bearer TOKEN”.",
            )
            for wrong in ("secret", "Basic secret", "Bearer")
        ),
        ("early", {}, None, 425, "The campaign opens at 2999-01-01T00:00:00Z."),
        ("over", {}, None, 410, "The campaign is closed."),
    ],
)
def test_each_refusal_has_its_status_and_sentence_and_counts_nothing(
    server, name, changes, body, status, sentence
):
    before = server.status("open")["received"]
    answer = server.send(
        name, MECHANISM, packed(MECHANISM) if body is None else body, 5, headers=changes
    )
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert answer.json()["status"] == status
    assert sentence in answer.json()["detail"]
    assert server.status("open")["received"] == before


def test_shared_tokens_for_senders_and_readers(server):
    made = server.create("shared", MECHANISM, senders="token", readers="token")
    body = packed(MECHANISM)
    path = "/v1/campaigns/shared/estimate"
    assert (
        server.send(
            "shared", MECHANISM, body, 5, headers={"Authorization": None}
        ).status_code
        == 401
    )
    assert (
        server.send("shared", MECHANISM, body, 5, token=made["read_token"]).status_code
        == 403
    )
    assert (
        server.send("shared", MECHANISM, body, 5, token=made["send_token"]).status_code
        == 200
    )
    assert server.http.get(path).status_code == 401
    assert server.administer("GET", path, token=made["send_token"]).status_code == 403
    assert server.administer("GET", path, token=made["read_token"]).status_code == 200
    renewed = server.administer(
        "PATCH", "/v1/campaigns/shared", json={"renew": ["send_token"]}
    ).json()
    assert (
        server.send("shared", MECHANISM, body, 5, token=made["send_token"]).status_code
        == 403
    )
    assert (
        server.send(
            "shared", MECHANISM, body, 5, token=renewed["send_token"]
        ).status_code
        == 200
    )


def test_the_document_is_signed_and_has_an_etag(server):
    answer = server.http.get("/v1/campaigns/open")
    campaign, keys, _ = read_document(answer.content)
    verify(answer.content, answer.headers["sstq-signature"], keys[0])
    assert (
        campaign.mechanism,
        len(base64.b64decode(answer.headers["sstq-signature"])),
    ) == (MECHANISM, 64)
    same = server.http.get(
        "/v1/campaigns/open", headers={"If-None-Match": answer.headers["etag"]}
    )
    assert (same.status_code, same.content, same.headers["etag"]) == (
        304,
        b"",
        answer.headers["etag"],
    )
    server.create("changing", MECHANISM)
    before = server.http.get("/v1/campaigns/changing").headers["etag"]
    server.administer(
        "PATCH", "/v1/campaigns/changing", json={"labels": list("abcdef")}
    )
    assert server.http.get("/v1/campaigns/changing").headers["etag"] != before


def test_the_estimate_is_that_of_all_messages_in_json_and_csv(server):
    server.create("means", MECHANISM, labels=list("abcdef"))
    bodies = [packed(MECHANISM, 50, seed) for seed in range(4)]
    path = "/v1/campaigns/means/estimate"
    empty = server.administer("GET", "/v1/campaigns/means/estimate").json()
    assert (empty["count"], empty["value"]) == (0, None)
    expected = MECHANISM.aggregator()
    for body in bodies:
        assert server.send("means", MECHANISM, body, 50).status_code == 200
        expected.update(MECHANISM.messages_from_bytes(body, 50))
    server.wait("means", 200)
    mean = expected.mean()
    found = server.administer("GET", path).json()
    assert (found["count"], found["value"], found["stderr"]) == (
        200,
        mean.value.tolist(),
        mean.stderr.tolist(),
    )
    assert found["region"]["half_width"] == mean.region(0.95).half_width.tolist()
    rows = server.administer("GET", f"{path}?format=csv").text.splitlines()
    assert rows[0] == "coordinate,label,value,stderr,half_width"
    assert (
        rows[1]
        == f"0,a,{mean.value[0]},{mean.stderr[0]},{mean.region(0.95).half_width[0]}"
    )
    assert len(rows) == 7
    for form in ("json", "csv"):  # made once, and asked for with its ETag
        known = server.administer("GET", f"{path}?format={form}").headers["etag"]
        headers = {"Authorization": f"Bearer {ADMINISTRATOR}", "If-None-Match": known}
        again = server.http.get(f"{path}?format={form}", headers=headers)
        assert (again.status_code, again.content) == (304, b"")


def test_groups_have_shares_sums_and_means(server):
    server.create("groups", GROUPED, group_labels=["left", "right"])
    messages = GROUPED.encode(np.full((200, 3), 0.5), 1, groups=np.arange(200) % 2)
    assert server.send("groups", GROUPED, messages.to_bytes(), 200).status_code == 200
    server.wait("groups", 200)
    found = server.administer("GET", "/v1/campaigns/groups/estimate").json()["groups"]
    assert [np.shape(found[name]) for name in ("shares", "sums", "means")] == [
        (2,),
        (2, 3),
        (2, 3),
    ]
    rows = server.administer(
        "GET", "/v1/campaigns/groups/estimate?format=csv"
    ).text.splitlines()
    assert rows[0].startswith("group,group_label,coordinate,label,share,")
    assert [row.split(",")[1] for row in rows[1:]] == ["left"] * 3 + ["right"] * 3


def test_administration_needs_the_token_and_says_what_is_wrong(server):
    content = {"name": "new", "mechanism": json.loads(MECHANISM.to_json())}
    assert server.http.post("/v1/campaigns", json=content).status_code == 401
    assert (
        server.administer(
            "POST", "/v1/campaigns", token="x" * 32, json=content
        ).status_code
        == 403
    )
    # nobody parses it before
    assert server.http.post("/v1/campaigns", content=b"{").status_code == 401
    whole = {
        "Authorization": f"Bearer {ADMINISTRATOR}",
        "Content-Type": "application/json",
    }
    for body, sentence in (
        (b"{", "The body must be JSON: "),
        (b"[]", "The body must be a JSON object"),
    ):
        unread = server.http.post("/v1/campaigns", content=body, headers=whole)
        assert (unread.status_code, unread.json()["detail"].startswith(sentence)) == (
            422,
            True,
        )
    taken = server.administer(
        "POST", "/v1/campaigns", json=content | {"name": "open", "readers": "token"}
    )
    assert taken.status_code == 409
    public = json.loads(sstq.FrameUnit(dim=6, epsilon=2.0).to_json()) | {
        "coin": "public"
    }
    refused = server.administer(
        "POST", "/v1/campaigns", json=content | {"mechanism": public}
    )
    assert (
        refused.status_code,
        "coin must be 'private'" in refused.json()["detail"],
    ) == (422, True)
    assert (
        server.administer(
            "POST", "/v1/campaigns/open/tokens", json={"count": 3}
        ).status_code
        == 409
    )
    assert (
        server.administer(
            "POST", "/v1/campaigns/open/tokens", json={"count": 0}
        ).status_code
        == 422
    )
    assert server.http.get("/v1/campaigns/open/state").status_code == 401
    reopened = server.administer(
        "PATCH", "/v1/campaigns/over", json={"closes": "2999-01-01T00:00:00Z"}
    )
    assert (reopened.status_code, "closed for good" in reopened.json()["detail"]) == (
        409,
        True,
    )
    server.create("gone", MECHANISM)
    assert server.administer("DELETE", "/v1/campaigns/gone").status_code == 204
    assert server.http.get("/v1/campaigns/gone").status_code == 404


def test_listing_shows_what_the_caller_may_read(server):
    public = [
        campaign["name"]
        for campaign in server.http.get("/v1/campaigns").json()["campaigns"]
    ]
    assert "open" in public
    assert "early" not in public
    everything = server.administer("GET", "/v1/campaigns").json()["campaigns"]
    assert {"open", "early", "over"} <= {campaign["name"] for campaign in everything}


def test_health_and_metrics(server):
    assert server.http.get("/health").json() == {"status": "ok"}
    assert server.http.get("/metrics").status_code == 401
    text = server.administer("GET", "/metrics").text
    assert re.search(
        r'^sstq_uploads_total\{campaign="open",status="4\d\d"\} \d+\.0$',
        text,
        flags=re.MULTILINE,
    )
    assert re.search(
        r'^sstq_upload_seconds_bucket\{le="0.1"\} \d+\.0$', text, flags=re.MULTILINE
    )
    assert io.StringIO(text).readline().startswith("# HELP ")
    assert "_created" not in text  # a time, finer than the hour
