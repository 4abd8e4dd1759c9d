import numpy as np
import pytest

import sstq
from sstq.runs.splitting import stream_part, words_a_message
from tests.contract.cases import CASES, DIM, build


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_seeded_run_are_the_run_for_every_mechanism(case, seed):
    mechanism, rng = build(case), np.random.default_rng(seed)
    x = np.random.default_rng(seed + 1).standard_normal((12, DIM))
    clients = np.arange(12) if mechanism.coin == "public" else None
    whole = mechanism.encode(x, np.random.default_rng(seed), clients=clients)
    parts = []
    for part in (slice(7, 12), slice(0, 1), slice(1, 7)):
        with stream_part(rng, mechanism, part.start, part.stop - part.start) as own:
            parts.append(mechanism.encode(x[part], own, clients=None if clients is None else clients[part]))
    last, first, middle = parts
    for column, *pieces in zip(whole.columns, first.columns, middle.columns, last.columns, strict=True):
        np.testing.assert_array_equal(np.concatenate(pieces), column)
    assert rng.bit_generator.state == np.random.default_rng(seed).bit_generator.state


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
    assert words_a_message(mechanism) == 3
