"""Nothing lost, doubled or skipped: a collector is killed over the life of a study, and people take part meanwhile.

The people are our own clients, each with a single-use token and an outbox of its own. What they sent is learned once
more with the library: the collector's study must have the same stages and the same state to the last bit.
"""

import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

pytest.importorskip("fastapi")

import numpy as np

from sstq.client import Client, DeliveryError
from sstq.messages.batch import Messages
from sstq.service.store import Store
from sstq.studies import Study, Words
from tests.patience import PATIENCE, until
from tests.service import both
from tests.service.serving import free_port, serving
from tests.service.studying import begin, values_of

pytestmark = pytest.mark.slow

NAME = "drinks"
AT_ONCE = 8  # people


class Crowd:
    """People who take part in a study as far as they are let, and what the collector has acknowledged of them."""

    def __init__(self, server, study, folder, people):
        made = server.administer(
            "POST", f"/v1/campaigns/{NAME}/tokens", json={"count": people}
        )
        self.url = f"{server.url}/{NAME}"
        self.folder = folder
        self.tokens = made.json()["tokens"]
        self.values = values_of(study, people, np.random.default_rng(1))
        self.admitted = threading.Semaphore(0)
        self.over = threading.Event()
        self.acknowledged = defaultdict(list)
        self.documents = defaultdict(set)

    def admit(self, people):
        """Let so many more people take part."""
        for _ in range(people):
            self.admitted.release()

    def take_part(self, number):
        """Take part as one person; again and again, until the study says that there is nothing left to do."""
        self.admitted.acquire()
        again = True
        while again is not None and not self.over.is_set():
            client = Client(
                self.url,
                most_epsilon=6.0,
                outbox=self.folder / f"{number}.outbox",
                token=self.tokens[number],
                patience=PATIENCE,
            )
            sent = []
            keep = client.outbox.put

            def kept(answer, uploads, *more, sent=sent, keep=keep, **named):
                sent += uploads
                keep(answer, sent, *more, **named)

            client.outbox.put = kept
            try:
                again = client.take_part(self.values[number])
            except DeliveryError as error:
                # The stage had its people; whoever was refused has not been stored.
                if "(410)" not in str(error):
                    raise
                self.admitted.release()  # for somebody else
                return
            stage = client.campaign.stage  # the one that was open by now
            self.documents[stage.number].add(client._document)
            for upload in sent:
                self.acknowledged[stage.number].append((client.campaign, upload))
            time.sleep(0.1)


def killed_over_a_life(store, start, folder, kills, people):
    """Kill the collector of a new study as often: while a stage asks, and at random moments after it has its people."""
    port = free_port()
    server = start(port)
    study = Words(epsilon=6.0, longest=40 if kills > 2 else 5)
    begin(server, NAME, study, people, senders="single-use", least=0.01)
    # Those on their way to a stage that has its people would be missing in the last one.
    spare = AT_ONCE * len(study.cohort_sizes(people))
    crowd = Crowd(server, study, folder, people + spare)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        going = [pool.submit(crowd.take_part, n) for n in range(len(crowd.tokens))]

        def happens(condition):
            """Whether a condition holds, unless somebody has failed, who would be missing for ever."""
            for each in going:
                if each.done():
                    each.result()
            return condition()

        try:
            for _ in range(kills):
                when = random.choice(["while people come", "when it is full", "again"])
                if when != "again":
                    until(lambda: happens(lambda: room(store)[1] > 0))
                    stage, left = room(store)
                    less = random.randint(0, left) if when == "while people come" else 0
                    crowd.admit(left - less)
                    filled = partial(is_filled, store, stage, less)
                    until(lambda filled=filled: happens(filled))
                time.sleep(random.uniform(0.0, 0.25))
                server.kill()
                server = start(port)
            crowd.admit(len(crowd.tokens))
            until(lambda: happens(lambda: store.campaigns()[NAME].closed))
        finally:
            crowd.over.set()
            crowd.admit(len(crowd.tokens))  # nobody waits any more
        for each in going:
            each.result()
    return study, crowd


def newest(store):
    """The newest stage."""
    stages = [
        own for own in store.campaigns().values() if own.study == NAME != own.name
    ]
    return max(stages, key=lambda own: int(own.name.removeprefix(f"{NAME}--")))


def room(store):
    """The newest stage and for how many more people it is."""
    name = newest(store).name
    return name, max(0, store.rooms([name])[name])


def is_filled(store, stage, less):
    """Whether a stage wants fewer people than that, or another one has followed."""
    name, left = room(store)
    return name != stage or left <= less


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.soak)])
@both
def test_a_killed_collector_loses_doubles_and_skips_nothing(
    database_url, tmp_path, kills
):
    settings = {
        "database": database_url,
        "messages_per_second": 0,
        "fold_seconds": 0.02,
        "reads_per_second": 0,
    }
    people = 20 * (kills + 1)
    Store(database_url).close()
    store = Store(database_url, read_only=True)
    with ExitStack() as servers:

        def start(port):
            return servers.enter_context(serving(tmp_path, port=port, **settings))

        study, crowd = killed_over_a_life(store, start, tmp_path, kills, people)
        again = Study.from_json(study.to_json())
        counts = store.counts()
        for number, sent in sorted(crowd.acknowledged.items()):
            (campaign,) = {own.stage: own for own, _ in sent}.values()
            messages = [
                campaign.mechanism.messages_from_bytes(upload.body, upload.messages)
                for _, upload in sent
            ]
            again.question(campaign.stage.people)
            again.learn(Messages.concatenate(messages))
            assert counts[campaign.name].received == len(sent)
            assert len(crowd.documents[number]) == 1  # a stage is published once
        assert store.study_state(NAME) == again.to_json()
        assert not again.cohorts_left
        everybody = sum(map(len, crowd.acknowledged.values()))
        assert counts[NAME].unspent == len(crowd.tokens) - everybody
    store.close()
