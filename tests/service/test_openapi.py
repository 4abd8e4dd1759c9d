"""The OpenAPI document is true: a fuzzer finds no undocumented status, content type or schema, and no error 500."""

import json

import hypothesis
import pytest

import sstq

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import schemathesis
from schemathesis.specs.openapi import checks

from tests.service.serving import ADMINISTRATOR, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), uploads_per_second=0) as running:
        running.create("open", MECHANISM, readers="public")
        yield running


def test_every_route_is_described(server):
    document = server.http.get("/openapi.json").json()
    assert {(method, path) for path, methods in document["paths"].items() for method in methods} == {
        ("get", "/health"),
        ("get", "/metrics"),
        ("get", "/v1/campaigns"),
        ("post", "/v1/campaigns"),
        ("get", "/v1/campaigns/{name}"),
        ("patch", "/v1/campaigns/{name}"),
        ("delete", "/v1/campaigns/{name}"),
        ("get", "/v1/campaigns/{name}/status"),
        ("get", "/v1/campaigns/{name}/estimate"),
        ("get", "/v1/campaigns/{name}/progress"),
        ("get", "/v1/campaigns/{name}/certificate"),
        ("get", "/v1/campaigns/{name}/state"),
        ("post", "/v1/campaigns/{name}/tokens"),
        ("post", "/v1/campaigns/{name}/messages"),
    }


@pytest.mark.parametrize("token", [ADMINISTRATOR, None], ids=["administrator", "nobody"])
def test_a_fuzzer_finds_nothing(server, token):
    document = server.http.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for operation in schema.get_all_operations():

        @hypothesis.given(case=operation.ok().as_strategy())
        @hypothesis.settings(
            max_examples=15, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        def fuzz(case):
            # About a campaign that is there, except where that would delete it.
            if "name" in (case.path_parameters or {}) and case.method.upper() != "DELETE":
                case.path_parameters["name"] = "open"
            case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS)

        fuzz()
    assert server.http.get("/health").status_code == 200
    assert server.status("open")["received"] == 0  # random bytes never have the digest of the mechanism
