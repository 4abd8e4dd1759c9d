"""Messages, exact sums and decoded means are those of the golden file, whatever moves inside."""

import numpy as np
import pytest

from tests.golden import frozen

GOLDEN = frozen.load()


def test_every_case_has_a_golden_record():
    assert sorted(GOLDEN) == sorted(frozen.keys())


@pytest.mark.parametrize("key", GOLDEN)
def test_nothing_on_the_wire_has_changed(key):
    now = frozen.compute(key)
    then = dict(GOLDEN[key])
    for numbers in ("mean", "decoded"):
        if numbers in then:
            # Continuous values are sent as float32, and rounding may differ between processors.
            tolerance = 1e-12 if "payload" in then else 1e-5
            np.testing.assert_allclose(
                now.pop(numbers), then.pop(numbers), rtol=tolerance, atol=tolerance
            )
    assert now == then
