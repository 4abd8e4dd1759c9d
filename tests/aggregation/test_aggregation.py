import io
import math
import zipfile
from fractions import Fraction

import numpy as np
import pytest

import sstq
from paper.baselines.bounded_sums import BoundedEstimator
from sstq.aggregation import Aggregator, VectorEstimator, describe_state
from sstq.messages.batch import Messages
from sstq.messages.files import MessageFile

MECHANISM = sstq.SSTQ(dim=20, epsilon=2.0, bits=3, clip=0.7)


def sample(count, rng=1, mechanism=MECHANISM):
    x = np.random.default_rng(rng).standard_normal((count, mechanism.dim))
    return mechanism.encode(x, rng=rng)


def aggregate(*batches, mechanism=MECHANISM):
    aggregator = mechanism.aggregator()
    for batch in batches:
        aggregator.update(batch)
    return aggregator


def same_bits(a, b):
    first = a.mean()
    second = b.mean()
    return (
        np.array_equal(first.value, second.value)
        and np.array_equal(first.stderr, second.stderr)
        and first.count == second.count
    )


@pytest.mark.parametrize(
    ("frame", "size"), [("hadamard", 64), ("fourier", 50), ("orthogonal", 50)]
)
def test_mean_and_error_are_those_of_the_decoded_messages(frame, size):
    mechanism = sstq.SSTQ(dim=20, epsilon=2.0, bits=3, frame=frame, frame_size=size)
    messages = sample(500, mechanism=mechanism)
    decoded = mechanism.decode(messages)
    estimate = aggregate(messages, mechanism=mechanism).mean()
    np.testing.assert_allclose(estimate.value, decoded.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(
        estimate.stderr, decoded.std(axis=0, ddof=1) / 500**0.5, rtol=1e-6
    )


def test_sums_are_exact():
    # The total of a coordinate, in rational arithmetic, is that of the decoding values up to their fixed-point unit.
    messages = sample(2000)
    aggregator = aggregate(messages)
    code = messages.column("code")
    index = messages.column("index")
    exponent = math.frexp(np.max(np.abs(MECHANISM.decoding_values)))[1]
    unit = Fraction(2) ** (exponent - 60)
    for j in range(MECHANISM.frame.size):
        exact = sum(
            (Fraction(w) for w in MECHANISM.decoding_values[code[index == j]].tolist()),
            Fraction(0),
        )
        _, high, low, _ = map(int, aggregator.sums()[j])
        assert abs((high * 2**30 + low) * unit - exact) <= np.sum(index == j) * unit / 2


def test_parts_add_up_to_the_whole():
    first = sample(300)
    second = sample(200, rng=2)
    whole = aggregate(first, second)
    merged = aggregate(first)
    merged.merge(aggregate(second))
    np.testing.assert_array_equal(merged.sums(), whole.sums())
    assert same_bits(merged, whole)


def test_a_merged_state_knows_its_files_and_its_seeds(tmp_path):
    path = tmp_path / "messages.sstq"
    sstq.write_messages(path, sample(30))
    part = MECHANISM.aggregator()
    assert part.update_from_file(path)
    whole = aggregate(MECHANISM.encode(np.ones((5, 20))))
    assert not whole.mean().simulated
    whole.merge(part)
    assert whole.mean().simulated
    assert not whole.update_from_file(path)
    assert whole.count == 35
    for simulated in (False, True):
        made = Aggregator.from_sums(whole.estimator, whole.sums(), 35, simulated)
        assert made.mean().simulated == simulated


def test_there_is_no_mean_of_nothing():
    with pytest.raises(ValueError, match="a mean needs at least one message, got none"):
        MECHANISM.aggregator().mean()


def test_counts_are_messages():
    mechanism = sstq.FrameUnit(4, 1.0, frame_size=4)
    rows = np.array([0, 2, 2, 2, 7])
    messages = mechanism.messages_from_columns((rows,), simulated=True)
    counted = mechanism.aggregator().update_counts({"row": [0, 2, 7]}, [1, 3, 1])
    np.testing.assert_array_equal(
        counted.sums(), mechanism.aggregator().update(messages).sums()
    )


def test_one_message_has_no_error():
    assert np.isnan(aggregate(sample(1)).mean().stderr).all()


def test_people_send_several_messages_each():
    mechanism = sstq.FrameUnit(4, 1.0, messages=3)
    messages = mechanism.encode(np.ones((5, 4)))
    estimate = mechanism.aggregator().update(messages).mean()
    assert (estimate.count, estimate.people) == (15, 5)


def test_what_is_no_batch_or_state_is_named():
    with pytest.raises(TypeError, match="messages must be Messages, got bytes"):
        MECHANISM.aggregator().update(b"messages")
    aggregator = aggregate(sample(5))
    with pytest.raises(ValueError, match="it has sums of shape"):
        type(aggregator).from_sums(aggregator.estimator, aggregator.sums()[1:], 5)


def test_a_long_file_is_added_as_a_whole_or_not_at_all(tmp_path):
    """Its messages take more memory than their sums, so that they are added up while they are read."""
    mechanism = sstq.FrameUnit(4, 1.0, frame_size=4)
    path = tmp_path / "long"
    messages = mechanism.encode(np.ones((5000, 4)))
    sstq.write_messages(path, messages)
    aggregator = mechanism.aggregator()
    assert aggregator.update_from_file(path)
    np.testing.assert_array_equal(
        aggregator.sums(), mechanism.aggregator().update(messages).sums()
    )
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    aggregator = mechanism.aggregator()
    with pytest.raises(ValueError, match="long"):
        aggregator.update_from_file(path)
    assert (aggregator.count, aggregator.sums().any()) == (0, False)


def test_simulation_is_marked():
    x = np.ones((2, 20))
    assert not aggregate(MECHANISM.encode(x)).mean().simulated
    assert aggregate(MECHANISM.encode(x), MECHANISM.encode(x, rng=1)).mean().simulated


def test_foreign_messages_change_nothing():
    other = MECHANISM.with_seed(1)
    aggregator = aggregate(sample(50))
    before = aggregator.sums().copy()
    with pytest.raises(ValueError, match="messages are of another mechanism"):
        aggregator.update(sample(5, mechanism=other))
    with pytest.raises(ValueError, match="other aggregator is of another mechanism"):
        aggregator.merge(aggregate(sample(5, mechanism=other), mechanism=other))
    # Forged columns that no reader would have let through.
    forged = Messages(
        MECHANISM.layout,
        (np.array([1], np.uint8), np.array([200], np.uint8)),
        MECHANISM.digest(),
    )
    with pytest.raises(ValueError, match="200"):
        aggregator.update(forged)
    np.testing.assert_array_equal(aggregator.sums(), before)
    assert aggregator.count == 50


def test_overflow_is_refused():
    mechanism = sstq.FrameUnit(4, 1.0, frame_size=4)
    aggregator = mechanism.aggregator().update_counts({"row": [0]}, [2**32 - 3])
    for more in (
        lambda: aggregator.update_counts({"row": [1]}, [4]),
        lambda: aggregator.merge(aggregate_row(4)),
    ):
        with pytest.raises(ValueError, match=r"at most 2\^32 messages"):
            more()
    aggregator.merge(aggregate_row(3))
    assert aggregator.count == 2**32

    with pytest.raises(ValueError, match=r"at most 2\^32 messages"):
        aggregator.update(mechanism.encode(np.ones(4)))


def aggregate_row(count):
    return (
        sstq.FrameUnit(4, 1.0, frame_size=4)
        .aggregator()
        .update_counts({"row": [2]}, [count])
    )


def test_an_aggregator_does_not_count_itself_twice():
    aggregator = aggregate(sample(5))
    with pytest.raises(ValueError, match="merged with itself"):
        aggregator.merge(aggregator)
    assert aggregator.count == 5


def test_a_failed_save_leaves_the_old_state(tmp_path, monkeypatch):
    path = tmp_path / "state"
    aggregator = aggregate(sample(30))
    aggregator.save(path)
    aggregator.update(sample(5, rng=2))

    def broken(*_args, **_kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        aggregator.save(path)
    assert MECHANISM.load_aggregator(path).count == 30
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_damaged_and_foreign_states_are_refused(tmp_path):
    path = tmp_path / "state"
    aggregate(sample(30)).save(path)
    with pytest.raises(ValueError, match="of another mechanism"):
        MECHANISM.with_seed(9).load_aggregator(path)
    raw = path.read_bytes()
    for length in range(0, len(raw), 13):
        path.write_bytes(raw[:length])
        with pytest.raises(ValueError, match="state"):
            MECHANISM.load_aggregator(path)
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match="not an aggregator's state"):
        MECHANISM.load_aggregator(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        MECHANISM.load_aggregator(tmp_path / "missing")


def stored_state(path):
    aggregate(sample(30)).save(path)
    with np.load(path) as archive:
        return dict(archive)


def test_states_that_unfold_are_refused_unread(tmp_path, monkeypatch):
    # Zeros take a thousandth of their size when compressed, and arrays of other names may have any size.
    path = tmp_path / "state"
    stored = stored_state(path)
    for write, arrays in (
        (np.savez_compressed, stored),
        (np.savez, stored | {"more": np.zeros(3)}),
    ):
        with path.open("wb") as file:
            write(file, **arrays)
        with monkeypatch.context() as patch:
            patch.setattr(
                "numpy.lib.format.read_array",
                lambda *_: pytest.fail("an array was read"),
            )
            with pytest.raises(
                ValueError, match=r"compressed|not those of this format"
            ):
                describe_state(path)


def member(dtype, shape, content=b""):
    """The bytes of a .npy with any header."""
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + content


@pytest.mark.parametrize(
    "content",
    [
        member("<U0", (10**13,)),
        member("<U64", (10**13,)),
        member("<U1", (2,), b"\0" * 4),
        member("<U1", (1, 2), b"\0" * 8),
        member("<i8", (1,), b"\0" * 8),
        member("|O", (1,), b"\0" * 8),
        b"no array",
        b"",
    ],
    ids=[
        "no bytes",
        "too many",
        "too few",
        "a table",
        "numbers",
        "objects",
        "text",
        "empty",
    ],
)
def test_sources_that_are_no_list_of_names_are_refused_at_once(tmp_path, content):
    stored_state(tmp_path / "whole")
    with (
        zipfile.ZipFile(tmp_path / "whole") as whole,
        zipfile.ZipFile(tmp_path / "state", "w") as state,
    ):
        for name in whole.namelist():
            state.writestr(name, content if name == "sources.npy" else whole.read(name))
    with pytest.raises(ValueError, match="state"):
        describe_state(tmp_path / "state")


def test_a_state_whose_directory_promises_more_than_the_file_is_refused(tmp_path):
    path = tmp_path / "state"
    stored_state(path)
    with zipfile.ZipFile(path, "a") as archive:
        for entry in archive.infolist():
            entry.file_size = entry.compress_size = 2**31
        archive._didModify = True  # so that the directory is written again
    with pytest.raises(ValueError, match="larger than the file"):
        describe_state(path)


@pytest.mark.parametrize("key", ["version", "count", "simulated"])
@pytest.mark.parametrize(
    "value", [np.ones(2), np.array("many"), np.array(np.inf), np.array(2.5), None]
)
def test_states_of_other_types_are_refused(tmp_path, key, value):
    path = tmp_path / "state"
    value = np.array(1 if key == "simulated" else True) if value is None else value
    stored = stored_state(path)
    with path.open("wb") as file:
        np.savez(file, **stored | {key: value})
    with pytest.raises(ValueError, match="state"):
        describe_state(path)


@pytest.mark.parametrize(
    ("kind", "unit"), [(VectorEstimator, 0.5), (BoundedEstimator, 128.0)]
)
def test_dense_sums_and_what_they_refuse(kind, unit):
    # 256 units of 0.5 are 128, and so is the bound.
    decoded = np.array([128.0, -0.25])
    estimator = kind(
        MECHANISM, 2, unit, lambda messages: np.tile(decoded, (len(messages), 1))
    )
    aggregator = Aggregator(estimator)
    aggregator.update(sample(3))
    np.testing.assert_allclose(
        estimator.estimate(aggregator.counted()).value, [128.0, -0.25], rtol=1e-12
    )
    before = aggregator.sums().copy()
    for bad in (128.1, -128.1, np.nan):
        decoded[:] = 0.0, bad
        with pytest.raises(ValueError, match="decoded coordinates must be at most 128"):
            aggregator.update(sample(3))
    np.testing.assert_array_equal(aggregator.sums(), before)
    assert aggregator.count == 3


def test_files_are_added_once_and_whole(tmp_path):
    good = tmp_path / "good.sstq"
    bad = tmp_path / "bad.sstq"
    sstq.write_messages(good, sample(30))
    sstq.write_messages(bad, sample(40, rng=2))
    bad.write_bytes(bad.read_bytes()[:-1] + b"\0")
    aggregator = MECHANISM.aggregator()
    assert aggregator.update_from_file(good)
    assert not aggregator.update_from_file(good)
    with pytest.raises(ValueError, match=r"bad\.sstq"):
        aggregator.update_from_file(bad)
    assert same_bits(aggregator, aggregate(sample(30)))
    # The state remembers its files, across saves and merges.
    aggregator.save(tmp_path / "state")
    resumed = MECHANISM.load_aggregator(tmp_path / "state")
    assert not resumed.update_from_file(good)
    with pytest.raises(ValueError, match="count twice"):
        resumed.merge(aggregator)


def test_files_with_the_same_few_bits_all_count(tmp_path):
    # Independent clients often send the same few bits: their files are different files all the same.
    mechanism = sstq.SSTQ(dim=2, epsilon=3.0, bits=1)
    aggregator = mechanism.aggregator()
    for suffix in (".sstq", ".parquet"):
        for client in range(40):
            path = tmp_path / f"{client}{suffix}"
            sstq.write_messages(path, mechanism.encode(np.array([1.0, 0.0])))
            assert aggregator.update_from_file(path)
    assert aggregator.count == 80
    # A copy under another name is the same file.
    (tmp_path / "copy").write_bytes((tmp_path / "0.sstq").read_bytes())
    assert not aggregator.update_from_file(tmp_path / "copy")


@pytest.mark.slow
def test_flipped_bits_of_a_state_never_change_it(tmp_path):
    path = tmp_path / "state"
    original = aggregate(sample(30))
    original.save(path)
    raw = path.read_bytes()
    # In place: to shorten a file and write it anew takes longer than all the rest.
    with path.open("r+b", buffering=0) as file:
        for bit in range(0, 8 * len(raw), 37):
            file.seek(bit // 8)
            file.write(bytes([raw[bit // 8] ^ 1 << bit % 8]))
            try:
                loaded = MECHANISM.load_aggregator(path)
            except ValueError:
                pass
            else:
                assert same_bits(loaded, original)
            file.seek(bit // 8)
            file.write(raw[bit // 8 :][:1])
    assert path.read_bytes() == raw


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "messages.sstq"
    sstq.write_messages(path, sample(30))

    def replacing(opened, *arguments):
        yield from read(opened, *arguments)
        with path.open("ab") as file:
            file.write(b"more")

    aggregator = MECHANISM.aggregator()
    read = MessageFile.read
    monkeypatch.setattr(MessageFile, "read", replacing)
    with pytest.raises(ValueError, match="changed while it was read"):
        aggregator.update_from_file(path)
    assert aggregator.count == 0


def test_a_saved_state_describes_itself(tmp_path):
    path = tmp_path / "state"
    aggregate(sample(30)).save(path)
    info = describe_state(path)
    assert (info.count, info.digest, info.rows, info.files) == (
        30,
        MECHANISM.digest(),
        64,
        0,
    )
    assert info.simulated


def test_a_small_file_needs_no_second_state(tmp_path, monkeypatch):
    """In ten million dimensions a state is half a gigabyte or more; a thousand messages are a few kilobytes."""
    mechanism = sstq.SSTQ(dim=1000, epsilon=2.0, bits=2)
    messages = mechanism.encode(np.zeros((50, 1000)), rng=1)
    sstq.write_messages(tmp_path / "few.sstq", messages)
    expected = mechanism.aggregator()
    aggregator = mechanism.aggregator()
    expected.update(messages)
    monkeypatch.setattr(
        type(aggregator), "__init__", lambda *_: pytest.fail("a second state")
    )
    assert aggregator.update_from_file(tmp_path / "few.sstq")
    assert not aggregator.update_from_file(tmp_path / "few.sstq")
    np.testing.assert_array_equal(aggregator.mean().value, expected.mean().value)
