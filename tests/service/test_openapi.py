"""The OpenAPI document is true: a fuzzer finds no undocumented status, content type or schema, and no error 500."""

import json

import hypothesis
import pytest
from hypothesis.strategies import booleans

import sstq

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import schemathesis
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from tests.service.serving import ADMINISTRATOR, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
# per route, and as many of what it must refuse
EXAMPLES = [4, pytest.param(60, marks=pytest.mark.soak)]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.missing_required_header,
    checks.unsupported_method,
    checks.allow_header_conformance,
    checks.ignored_auth,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), messages_per_second=0) as running:
        running.create("open", MECHANISM, readers="public")
        running.create("changing", MECHANISM, senders="single-use", readers="token")
        yield running


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory):
    """A shuffler of campaigns of the same names, and the collector that they are at."""
    folder = tmp_path_factory.mktemp("shuffler")
    with (
        serving(folder) as collector,
        serving(folder, command="shuffler", collector=collector.url) as running,
    ):
        terms = {
            "url": running.url,
            "threshold": 10**6,
            **running.http.get("/v1/key").json(),
        }
        for name, senders in (("open", "everybody"), ("changing", "single-use")):
            collector.create(
                name,
                MECHANISM,
                closes="2100-01-01T00:00:00Z",
                shuffling=terms,
                senders=senders,
            )
        yield running


def routes(server):
    document = server.http.get("/openapi.json").json()
    paths = {
        path: path.replace("/v1/campaigns/{name}", ".") for path in document["paths"]
    }
    return {
        f"{method} {short}"
        for path, short in paths.items()
        for method in document["paths"][path]
    }


COMMON = {"get /health", "get /metrics", "get /v1/key", "get .", "delete ."}
COMMON |= {"get ./status", "post ./tokens", "get ./messages", "post ./messages"}
OWN = {
    "get ./estimate",
    "get ./progress",
    "get ./certificate",
    "get ./state",
    "post ./senders",
    "post ./batches",
}


def test_every_route_is_described(server, shuffler):
    assert routes(shuffler) == COMMON
    assert routes(server) == COMMON | OWN | {
        "get /v1/campaigns",
        "post /v1/campaigns",
        "patch .",
    }


def aimed(case):
    """The same request, about what is there: most random ones would not get further than its name."""
    changes = case.method.upper() in ("PATCH", "DELETE") or case.path.endswith(
        "/tokens"
    )
    if "name" in (case.path_parameters or {}) and case.method.upper() != "DELETE":
        case.path_parameters["name"] = "changing" if changes else "open"
    if case.path.endswith("/messages") and "SSTQ-Digest" in (case.headers or {}):
        case.headers["SSTQ-Digest"] = MECHANISM.digest()
    if (
        case.path == "/v1/campaigns"
        and isinstance(case.body, dict)
        and "mechanism" in case.body
    ):
        case.body["mechanism"] = json.loads(MECHANISM.to_json())
    return case


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(
    ("token", "mode"),
    [
        (ADMINISTRATOR, GenerationMode.POSITIVE),
        (ADMINISTRATOR, GenerationMode.NEGATIVE),
        # as the check of ignored tokens asks
        pytest.param(None, GenerationMode.POSITIVE, marks=pytest.mark.soak),
    ],
)
def test_a_fuzzer_finds_nothing(server, token, mode, examples):
    before = server.status("open")["received"]
    counted = fuzz_all(server, token, mode, examples)
    assert server.status("open")["received"] == before + sum(dict(counted).values())


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_fuzzer_finds_nothing_at_a_shuffler(shuffler, examples):
    fuzz_all(shuffler, ADMINISTRATOR, GenerationMode.POSITIVE, examples)
    assert shuffler.status("open")["outgoing"] == 0


def fuzz_all(server, token, mode, examples):
    """Ask every route for many things; returns the keys and counts of uploads that were taken."""
    counted = []
    schema = schemathesis.openapi.from_dict(server.http.get("/openapi.json").json())
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for found in schema.get_all_operations():
        operation = found.ok()
        if (
            mode is GenerationMode.NEGATIVE
            and not operation.body
            and not list(operation.iter_parameters())
        ):
            continue  # there is nothing that it could refuse

        @hypothesis.given(
            case=operation.as_strategy(generation_mode=mode), aim=booleans()
        )
        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        def fuzz(case, aim):
            if aim and mode is GenerationMode.POSITIVE:
                case = aimed(case)
            answer = case.call_and_validate(
                base_url=server.url, headers=headers, checks=CHECKS
            )
            if (
                case.path.endswith("/messages")
                and case.method == "POST"
                and answer.status_code == 200
            ):
                counted.append(
                    (case.headers["Idempotency-Key"], answer.json()["count"])
                )

        fuzz()
    assert server.http.get("/health").status_code == 200
    assert server.log.read_text() == ""
    return counted


def test_an_answer_405_names_all_methods_of_the_path(server):
    for path, methods in [
        ("/v1/campaigns", "GET, POST"),
        ("/v1/campaigns/open", "DELETE, GET, PATCH"),
        ("/v1/campaigns/open/messages", "GET, OPTIONS, POST"),
        ("/health", "GET, HEAD"),
    ]:
        answer = server.http.put(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)
