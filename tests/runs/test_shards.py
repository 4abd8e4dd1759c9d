import os
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app
from sstq.messages.files import describe_messages
from sstq.runs import shards as runs_shards
from sstq.runs.shards import encode_shard, plan_shards, record_simulation, stream_part, unfinished_folder
from tests.contract.cases import CASES, DIM, build


@pytest.fixture
def mechanism():
    return sstq.SSTQ(dim=5, epsilon=3.0, bits=2)


@pytest.fixture
def planned(tmp_path, seed):
    """Three shards of 20, 7 and 13 vectors and where their messages go."""
    x = np.random.default_rng(seed).standard_normal((40, 5))
    paths = [tmp_path / f"{name}.npy" for name in ("one", "two", "three")]
    for path, rows in zip(paths, np.split(x, [20, 27]), strict=True):
        np.save(path, rows)
    unfinished_folder(tmp_path / "out").mkdir(parents=True)
    return x, plan_shards(paths, tmp_path / "out", 5)


def read(shard, mechanism):
    return sstq.Messages.concatenate(list(sstq.read_messages(shard.messages, mechanism)))


def test_seeded_shards_hold_the_messages_of_one_run_in_any_order(planned, mechanism):
    x, shards = planned
    rng = np.random.default_rng(3)
    reports = [encode_shard(shard, mechanism, rng) for shard in reversed(shards)]
    assert [report.vectors for report in reports] == [13, 7, 20]
    together = sstq.Messages.concatenate([read(shard, mechanism) for shard in shards])
    assert together.to_bytes() == mechanism.encode(x, rng=3).to_bytes()
    assert together.simulated


def test_a_finished_shard_is_never_encoded_again(planned, mechanism):
    _, shards = planned
    assert encode_shard(shards[0], mechanism).vectors == 20
    before = shards[0].messages.read_bytes()
    np.save(shards[0].vectors, np.ones((20, 5)))
    assert encode_shard(shards[0], mechanism) is None
    assert shards[0].messages.read_bytes() == before
    assert not list(unfinished_folder(shards[0].messages.parent).iterdir())


def test_of_two_tries_at_once_the_first_to_finish_counts(planned, mechanism, monkeypatch):
    """The second try finishes while the first is under way, as when a machine was believed dead."""
    _, (shard, *_) = planned
    encode = runs_shards.encode_files

    def slow(*arguments, **options):
        monkeypatch.setattr(runs_shards, "encode_files", encode)
        assert encode_shard(shard, mechanism).vectors == 20
        slow.finished = describe_messages(shard.messages).file_id
        return encode(*arguments, **options)

    monkeypatch.setattr(runs_shards, "encode_files", slow)
    assert encode_shard(shard, mechanism) is None
    assert describe_messages(shard.messages).file_id == slow.finished
    assert not list(unfinished_folder(shard.messages.parent).iterdir())


@pytest.mark.parametrize("finished", [True, False])
def test_a_try_whose_file_was_removed_publishes_nothing(planned, mechanism, monkeypatch, finished):
    _, (shard, *_) = planned

    def removed(attempt, target):
        os.unlink(attempt)
        if finished:
            target.write_bytes(b"of another try")
        raise FileNotFoundError

    monkeypatch.setattr(os, "link", removed)
    if finished:
        assert encode_shard(shard, mechanism) is None
    else:
        with pytest.raises(FileNotFoundError):
            encode_shard(shard, mechanism)
        assert not shard.messages.exists()


def test_a_message_file_that_cannot_be_the_shard_s_is_refused(planned, mechanism):
    _, shards = planned
    encode_shard(shards[0], mechanism)
    for changed, other, rng in (
        (replace(shards[0], count=19), mechanism, None),
        (shards[0], sstq.SSTQ(dim=5, epsilon=2.0, bits=2), None),
        (shards[0], mechanism, np.random.default_rng(0)),
    ):
        with pytest.raises(ValueError, match="choose another folder"):
            encode_shard(changed, other, rng)


def test_a_simulation_keeps_to_one_seed_and_one_list_of_shards(planned, mechanism, tmp_path):
    _, shards = planned
    folder = tmp_path / "out"
    for _ in range(2):
        record_simulation(folder, mechanism, 3, shards)
        encode_shard(shards[1], mechanism, np.random.default_rng(3))
    earlier = plan_shards([tmp_path / "one.npy", tmp_path / "three.npy", tmp_path / "two.npy"], folder, 5)
    for name, other in (
        ("seed", (mechanism, 4, shards)),
        ("mechanism", (sstq.SSTQ(dim=5, epsilon=2.0, bits=2), 3, shards)),
        ("shards", (mechanism, 3, shards[:2])),
        ("shards", (mechanism, 3, earlier)),
        ("seed, shards", (mechanism, 4, earlier)),
    ):
        with pytest.raises(ValueError, match=f"another simulation, which differs in {name}; choose another folder"):
            record_simulation(folder, *other)
    (folder / ".simulation.json").write_text('{"seed"')
    with pytest.raises(ValueError, match="is damaged"):
        record_simulation(folder, mechanism, 3, shards)
    (folder / ".simulation.json").unlink()
    with pytest.raises(ValueError, match=r"two.sstq exists without .simulation.json"):
        record_simulation(folder, mechanism, 3, shards)


def test_the_command_refuses_to_mix_simulations(planned, mechanism, tmp_path):
    _, shards = planned
    (tmp_path / "mechanism.json").write_text(mechanism.to_json())
    paths = [shard.vectors for shard in shards]

    def encode(vectors, seed, code):
        options = ["-m", tmp_path / "mechanism.json", "-o", tmp_path / "out", "--shards", "sstq", "--seed", seed]
        result = CliRunner().invoke(app, [str(word) for word in ("encode", *vectors, *options)])
        assert result.exit_code == code, result.output
        return result.stderr

    encode(paths, 3, 0)
    before = [shard.messages.read_bytes() for shard in shards]
    shards[1].messages.unlink()
    assert "differs in seed;" in encode(paths, 4, 1)
    assert "differs in shards;" in encode(paths[1:], 3, 1)
    assert not shards[1].messages.exists()
    assert "2 of 3 message files already existed" in encode(paths, 3, 0)
    together = sstq.Messages.concatenate([read(shard, mechanism) for shard in shards])
    assert together.to_bytes() == mechanism.encode(planned[0], rng=3).to_bytes()
    assert [shard.messages.read_bytes() for shard in (shards[0], shards[2])] == [before[0], before[2]]


def test_bad_vectors_leave_nothing(planned, mechanism):
    _, shards = planned
    rows = np.zeros((7, 5))
    rows[6, 4] = np.nan
    np.save(shards[1].vectors, rows)
    with pytest.raises(ValueError, match="row 6, column 4"):
        encode_shard(shards[1], mechanism)
    np.save(shards[1].vectors, np.zeros((8, 5)))
    with pytest.raises(ValueError, match=r"must have 7 vectors, .*got 8"):
        encode_shard(shards[1], mechanism)
    assert [path.name for path in shards[1].messages.parent.iterdir()] == [".unfinished"]


def test_shards_need_names_of_their_own(tmp_path):
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a.npy", tmp_path / "b" / "a.npy"):
        np.save(path, np.zeros((2, 5)))
    with pytest.raises(ValueError, match="different names"):
        plan_shards([tmp_path / "a.npy", tmp_path / "b" / "a.npy"], tmp_path, 5)
    (tmp_path / "link.npy").symlink_to("a.npy")
    for again in ("a.npy", "link.npy"):
        with pytest.raises(ValueError, match="is the same file as"):
            plan_shards([tmp_path / "a.npy", tmp_path / again], tmp_path, 5)
    np.save(tmp_path / "none.npy", np.zeros((0, 5)))
    with pytest.raises(ValueError, match="no vectors in"):
        plan_shards([tmp_path / "none.npy"], tmp_path, 5)
    os.rename(tmp_path / "a.npy", tmp_path / "a.sstq")
    with pytest.raises(ValueError, match="must not contain the input file"):
        plan_shards([tmp_path / "a.sstq"], tmp_path, 5)
    with pytest.raises(ValueError, match="kind must be 'sstq' or 'parquet', got 'csv'"):
        plan_shards([tmp_path / "a.sstq"], tmp_path, 5, kind="csv")


def test_parquet_shards_and_public_coins(planned, tmp_path):
    x, shards = planned
    assigned = sstq.SSTQ(dim=5, epsilon=3.0, bits=2, coin="public")
    shards = plan_shards([shard.vectors for shard in shards], tmp_path / "out", 5, kind="parquet")
    clients = np.arange(100, 140, dtype=np.uint64)
    for shard in shards:
        ids = clients[shard.first : shard.first + shard.count]
        encode_shard(shard, assigned, np.random.default_rng(2), clients=ids)
    assert {describe_messages(shard.messages).kind for shard in shards} == {"parquet"}
    together = sstq.Messages.concatenate([read(shard, assigned) for shard in shards])
    assert together.to_bytes() == assigned.encode(x, rng=2, clients=clients).to_bytes()
    np.testing.assert_array_equal(together.clients, clients)


# Parts of one stream


@pytest.mark.parametrize("case", [case for case in CASES if "messages" not in CASES[case]])
def test_parts_of_a_seeded_run_are_the_run_for_every_mechanism(case, seed):
    mechanism, rng = build(case), np.random.default_rng(seed)
    x = np.random.default_rng(seed + 1).standard_normal((12, DIM))
    clients = np.arange(12) if mechanism.coin == "public" else None
    groups = None if mechanism.groups is None else np.arange(12) % mechanism.groups
    whole = mechanism.encode(x, np.random.default_rng(seed), clients=clients, groups=groups)
    parts = []
    for part in (slice(7, 12), slice(0, 1), slice(1, 7)):
        beside = {"clients": clients, "groups": groups}
        some = {name: None if values is None else values[part] for name, values in beside.items()}
        with stream_part(rng, mechanism, part.start, part.stop - part.start) as own:
            parts.append(mechanism.encode(x[part], own, **some))
    last, first, middle = parts
    for column, *pieces in zip(whole.columns, first.columns, middle.columns, last.columns, strict=True):
        np.testing.assert_array_equal(np.concatenate(pieces), column)
    assert rng.bit_generator.state == np.random.default_rng(seed).bit_generator.state


def test_parts_with_several_messages_per_person_take_as_many_words_and_share_none(tmp_path):
    mechanism = sstq.FrameUnit(4, 2.0, frames=4, messages=3)
    x = np.random.default_rng(1).standard_normal((10, 4))
    np.save(tmp_path / "a.npy", x[:6])
    np.save(tmp_path / "b.npy", x[6:])
    shards = plan_shards([tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "out", 4)
    unfinished_folder(tmp_path / "out").mkdir(parents=True)
    for shard in shards:
        report = encode_shard(shard, mechanism, np.random.default_rng(5))
        assert (report.vectors, describe_messages(shard.messages).count) == (shard.count, 3 * shard.count)
        assert encode_shard(shard, mechanism, np.random.default_rng(5)) is None
    # The parts of a stream are one after the other; within one, so are the slots.
    stream = np.random.default_rng(5)
    assert read(shards[0], mechanism).to_bytes() == mechanism.encode(x[:6], stream).to_bytes()
    assert read(shards[1], mechanism).to_bytes() == mechanism.encode(x[6:], stream).to_bytes()


def test_a_part_that_draws_another_number_of_words_is_an_error():
    mechanism, rng = sstq.SSTQ(dim=3, epsilon=2.0, bits=2), np.random.default_rng(1)
    with pytest.raises(RuntimeError, match="3 words for each of 4"), stream_part(rng, mechanism, 2, 4) as part:
        mechanism.encode(np.ones((5, 3)), part)


def test_secret_randomness_and_other_generators():
    mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
    with stream_part(None, mechanism, 5, 2) as part:
        assert part is None
    other = np.random.Generator(np.random.MT19937(1))
    with pytest.raises(ValueError, match="PCG64"), stream_part(other, mechanism, 0, 1):
        pass
