"""One mean per public group: the same as one aggregator for each, whatever the order, the files and the groups."""

import json

import numpy as np
import pytest
from scipy.stats import binom

import sstq
from sstq.aggregation.groups import FEW, GroupedAggregator, describe_groups
from sstq.files.npy import read_archive
from sstq.messages.batch import Messages
from sstq.messages.labels import Labels

DIM = 6
MECHANISMS = [
    sstq.FrameUnit(DIM, 4.0, frames=64),
    sstq.FrameUnit(DIM, 4.0, frames=1),
    sstq.SSTQ(DIM, 4.0, bits=2),
    sstq.SSTQ(DIM, 4.0, bits=2, coin="public"),
    sstq.PrivUnit(DIM, 4.0),
    sstq.GroupUnit(DIM, 4.0, groups=3, frames=16),
    sstq.Clean(DIM),
]
# Groups of 1 to 1024 people: small ones are kept as messages, large ones as sums.
LABELS = np.repeat([f"group {k:02}" for k in range(11)], 2 ** np.arange(11))
ALL = len(LABELS)


def encoded(mechanism, seed, n=ALL):
    rng = np.random.default_rng(seed)
    options = {"clients": np.arange(n)} if mechanism.coin == "public" else {}
    if isinstance(mechanism, sstq.GroupUnit):
        options["groups"] = rng.integers(3, size=n)
    return mechanism.encode(rng.normal(size=(n, DIM)) / 4, rng=seed, **options)


def with_labels(messages, labels, column="country"):
    return Messages(**{**vars(messages), "labels": Labels.of(labels, column)})


def saved(groups, path):
    groups.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_every_group_is_an_aggregator_of_its_own(mechanism, seed):
    messages = encoded(mechanism, seed)
    shuffled = np.random.default_rng(seed).permutation(ALL)
    groups = GroupedAggregator(mechanism)
    groups.update(messages.sorted_by(shuffled), LABELS[shuffled])
    assert groups.counts == {f"group {k:02}": 2**k for k in range(11)}
    for label, found in groups.means().items():
        alone = mechanism.aggregator()
        alone.update(messages.sorted_by(np.flatnonzero(label == LABELS)))
        expected = alone.mean()
        assert np.array_equal(found.estimate.value, expected.value)
        assert np.array_equal(found.estimate.stderr, expected.stderr, equal_nan=True)
        assert (found.estimate.count, found.estimate.simulated) == (expected.count, True)
        assert found.radius == expected.region(0.95).radius or found.estimate.count == 1


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_state_depends_on_the_messages_alone(tmp_path, mechanism, seed):
    messages = encoded(mechanism, seed)
    whole = GroupedAggregator(mechanism)
    whole.update(messages, LABELS)
    order = np.random.default_rng(seed).permutation(ALL)
    parts = [GroupedAggregator(mechanism) for _ in range(3)]
    for number, some in enumerate(np.array_split(order, 20)):
        parts[number % 3].update(messages.sorted_by(some), LABELS[some])
    for other in parts[1:]:
        parts[0].merge(other)
    raw = saved(whole, tmp_path / "whole")
    assert saved(parts[0], tmp_path / "parts") == raw
    loaded = GroupedAggregator.load(tmp_path / "whole", mechanism)
    assert saved(loaded, tmp_path / "again") == raw
    # A state that was loaded goes on as if it had never been saved.
    loaded.update(messages, LABELS)
    whole.update(messages, LABELS)
    assert saved(loaded, tmp_path / "loaded") == saved(whole, tmp_path / "twice")
    info = describe_groups(tmp_path / "whole")
    assert (info.groups, info.count, info.column, info.simulated) == (11, ALL, "group", True)


def test_files_count_once(tmp_path, seed):
    mechanism = MECHANISMS[0]
    messages = with_labels(encoded(mechanism, seed), LABELS)
    sstq.write_messages(tmp_path / "a.parquet", messages[:500])
    sstq.write_messages(tmp_path / "b.parquet", messages[500:])
    groups = GroupedAggregator(mechanism)
    assert groups.update_from_file(tmp_path / "a.parquet")
    assert not groups.update_from_file(tmp_path / "a.parquet")
    groups.save(tmp_path / "state")
    groups = GroupedAggregator.load(tmp_path / "state", mechanism)
    assert not groups.update_from_file(tmp_path / "a.parquet")
    other = GroupedAggregator(mechanism)
    other.update_from_file(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="both aggregators contain the same message file"):
        groups.merge(other)
    with pytest.raises(ValueError, match="cannot be merged with itself"):
        groups.merge(groups)
    assert groups.update_from_file(tmp_path / "b.parquet")
    once = GroupedAggregator(mechanism)
    once.update(messages)
    assert all(np.array_equal(groups.mean(g).estimate.value, once.mean(g).estimate.value) for g in once.labels)
    assert groups.column == once.column == "country"


def test_what_does_not_belong_is_refused_and_changes_nothing(tmp_path, seed):
    mechanism = MECHANISMS[0]
    messages = encoded(mechanism, seed)
    groups = GroupedAggregator(mechanism, column="country")
    groups.update(messages, LABELS)
    before = saved(groups, tmp_path / "before")
    sstq.write_messages(tmp_path / "plain.parquet", messages)
    sstq.write_messages(tmp_path / "town.parquet", with_labels(messages, LABELS, "town"))
    whole = tmp_path / "cut.parquet"
    sstq.write_messages(whole, with_labels(messages, LABELS))
    whole.write_bytes(whole.read_bytes()[:-1])
    other = mechanism.replace(epsilon=5.0)
    refusals = [
        (lambda: groups.update(messages), "these messages carry none"),
        (lambda: groups.update(messages, LABELS[1:]), f"labels must be {ALL}, one per message, got"),
        (lambda: groups.update(messages, [None] * ALL), "must not be null"),
        (lambda: groups.update(with_labels(messages, LABELS), LABELS), "these messages carry labels"),
        (
            lambda: groups.update(with_labels(messages, LABELS, "town")),
            "labels by 'town', expected labels by 'country'",
        ),
        (lambda: groups.update(encoded(other, seed), LABELS), "messages are of another mechanism"),
        (lambda: groups.merge(GroupedAggregator(other)), "the other aggregator is of another mechanism"),
        (lambda: groups.merge(GroupedAggregator(mechanism, "town")), "labels by 'town', expected labels by 'country'"),
        (lambda: groups.update_from_file(tmp_path / "plain.parquet"), "must have labels.*encode it with --by country"),
        (lambda: groups.update_from_file(tmp_path / "town.parquet"), r"town\.parquet has labels by 'town'"),
        (lambda: groups.update_from_file(whole), "truncated, damaged"),
        (lambda: groups.mean("nobody"), "there is no group 'nobody'"),
    ]
    for refused, message in refusals:
        with pytest.raises(ValueError, match=message):
            refused()
        assert saved(groups, tmp_path / "after") == before


def test_noise_for_a_whole_round_has_no_groups():
    with pytest.raises(ValueError, match="csgm adds noise once for all clients of a round, not per group"):
        GroupedAggregator(sstq.CSGM(DIM, 1.0, clients=100))


def test_no_vector_beyond_reach_is_half_added(tmp_path, seed):
    mechanism = sstq.PrivUnitG(DIM, 4.0)
    groups = GroupedAggregator(mechanism)
    groups.update(encoded(mechanism, seed), LABELS)
    before = saved(groups, tmp_path / "before")
    impossible = mechanism._messages((np.full((2, DIM), 1e30, np.float32),), None, False)
    with pytest.raises(ValueError, match="no honest client sends larger ones"):
        groups.update(Messages.concatenate([encoded(mechanism, seed, 5), impossible]), list("abcdexy"))
    assert saved(groups, tmp_path / "after") == before


def test_damaged_states_are_refused(tmp_path, seed):
    mechanism = MECHANISMS[1]
    groups = GroupedAggregator(mechanism)
    groups.update(encoded(mechanism, seed), LABELS)
    path = tmp_path / "state.npz"
    groups.save(path)
    stored = read_archive(path)
    head = json.loads(stored["head"].tobytes())

    def refused(message, *, without="", column=0, add=0, sums=None, **changed):
        raw = np.frombuffer(json.dumps(head | changed).encode(), np.uint8)
        arrays = stored | {"head": raw, "groups": stored["groups"] + add * np.eye(3, dtype=int)[column]}
        arrays |= {} if sums is None else {"sums": sums}
        np.savez(path, **{name: array for name, array in arrays.items() if name != without})
        with pytest.raises(ValueError, match=message):
            GroupedAggregator.load(path, mechanism)

    damaged = "is damaged or not a state of groups"
    refused(damaged, without="head")
    refused(damaged, labels=head["labels"][::-1])
    refused(damaged, labels=head["labels"][1:])
    refused(damaged, column=0, add=-ALL)
    refused(damaged, column=1, add=2)
    refused(damaged, column=2, add=1)
    refused(damaged, sources=[1])
    refused("format has version 2, this library reads version 3", version=2)
    refused(damaged, sums=stored["sums"][1:])
    refused("is damaged", column=0, add=1)
    refused("is damaged", sums=np.full_like(stored["sums"], 60_000))
    refused("is damaged", sums=-stored["sums"])
    refused("is of another mechanism", digest="0" * 64)
    mechanism.aggregator().save(path)
    assert describe_groups(path) is None
    path.write_bytes(b"PK")
    assert describe_groups(path) is None


# --- marks ---


@pytest.mark.parametrize("mechanism", [sstq.FrameUnit(4, 3.0, frames=64), sstq.SSTQ(4, 3.0, bits=2)], ids=repr)
def test_about_one_group_in_twenty_without_a_mean_has_no_mark(mechanism, seed):
    """False failures: 1e-7, with a chance of 7 % per group, of which 5 % are nominal and 2 % for 100 messages."""
    total, people = 300, 100
    groups = GroupedAggregator(mechanism)
    groups.update(mechanism.encode(np.zeros((total * people, 4)), rng=seed), np.repeat(np.arange(total), people))
    unmarked = sum(not group.mark for group in groups.means().values())
    assert unmarked <= binom.isf(1e-7, total, 0.07)


def test_marks(seed):
    """At ε = 8 the error of 10,000 people is 2 % of clip: no mark fails by chance."""
    mechanism = sstq.FrameUnit(4, 8.0, frames=1024)
    x = np.repeat([[0.9, 0, 0, 0], [0, 0, 0, 0], [0.9, 0, 0, 0]], [10_000, 10_000, FEW - 1], axis=0)
    groups = GroupedAggregator(mechanism)
    groups.update(mechanism.encode(x, rng=seed), np.repeat(["large", "zero", "few"], [10_000, 10_000, FEW - 1]))
    assert groups.mean("large").mark == ""
    assert groups.mean("few").mark == "too few"
    groups.update(mechanism.encode(x[:1], rng=seed), [5])
    assert groups.mean(5).mark == "too few"
    assert np.isnan(groups.mean(5).error)
    # Zero in the region fails by chance once in a million at this level.
    assert groups.mean("zero", level=1 - 1e-6).mark == "within error"


def test_numbers_are_in_their_order(tmp_path, seed):
    mechanism = MECHANISMS[0]
    groups = GroupedAggregator(mechanism)
    groups.update(encoded(mechanism, seed, 6), ["b", 10, 9, "a", 100, "-1"])
    assert groups.labels == [*groups.means()] == ["9", "10", "100", "-1", "a", "b"]
    groups.save(tmp_path / "state")
    assert GroupedAggregator.load(tmp_path / "state", mechanism).labels == groups.labels


def test_ten_thousand_groups_take_the_memory_of_their_messages(seed):
    mechanism = sstq.SSTQ(1000, 4.0, bits=2)  # whose sums take 128 KB
    groups = GroupedAggregator(mechanism)
    messages = mechanism.encode(np.zeros((200, 1000)), rng=seed)
    for _ in range(100):
        groups.update(messages, np.random.default_rng(seed).integers(10_000, size=200))
    assert groups.count == 20_000
    assert sum(group.sums().nbytes for group in groups._groups.values()) <= 20_000 * 3 * 8


@pytest.mark.parametrize("mechanism", [one for one in MECHANISMS if not one.uncountable], ids=repr)
def test_groups_are_one_more_column_of_counts(tmp_path, mechanism, seed):
    messages = encoded(mechanism, seed)
    groups = GroupedAggregator(mechanism, "country")
    groups.update(messages, LABELS)
    counted = mechanism.counted(messages)
    names = [field.name for field in counted.layout.fields]
    table = dict(zip(names, counted.columns, strict=True)) | {"country": LABELS, "messages": np.ones(ALL, dtype=int)}
    other = GroupedAggregator(mechanism, "country")
    for half in (slice(None, None, 2), slice(1, None, 2)):
        other.update_counts({name: column[half] for name, column in table.items()}, simulated=True)
    assert saved(other, tmp_path / "counts") == saved(groups, tmp_path / "messages")
    other.update_counts(table, np.zeros(ALL, dtype=int), ["nobody"] * ALL, source="empty")
    assert "nobody" not in other.labels
    with pytest.raises(ValueError, match="source 'empty' is counted already"):
        other.update_counts(table, source="empty")
    for wrong in ("", "x" * 65, 7):
        with pytest.raises(ValueError, match="source must be a text of 1 to 64 characters"):
            other.update_counts(table, source=wrong)
    with pytest.raises(ValueError, match="no column 'town'"):
        GroupedAggregator(mechanism, "town").update_counts(table)
    with pytest.raises(ValueError, match=f"labels must be {ALL}, one per row"):
        other.update_counts(table, labels=["DE"])
