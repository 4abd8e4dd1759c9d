import numpy as np
import pytest

from sstq.frames.family import FrameFamily
from sstq.frames.tight import HadamardFrame


@pytest.mark.parametrize("rounds", [2, 3])
def test_many_frames_at_once_are_the_frames_one_by_one(rounds):
    family = FrameFamily(HadamardFrame(dim=5, size=16, seed=3, rounds=rounds), count=100)
    numbers = np.array([0, 99, 7, 7])
    first, later = family.signs(numbers)
    y = np.random.default_rng(1).standard_normal((4, 16))
    x = family.synthesize(y, numbers)
    for row, number in enumerate(numbers):
        frame = family.frame(int(number))
        np.testing.assert_array_equal(first[row], frame.signs)
        np.testing.assert_array_equal(later[row], frame._later_signs)
        np.testing.assert_allclose(x[row], frame.synthesize(y[row : row + 1])[0], atol=1e-14)


def test_one_frame_is_the_base_and_several_are_different():
    base = HadamardFrame(dim=5, size=16, seed=3, rounds=2)
    assert FrameFamily(base, 1).frame(0) == base
    assert len({FrameFamily(base, 50).frame(number).seed for number in range(50)}) == 50
    with pytest.raises(ValueError, match="rounds must be 2 or 3"):
        FrameFamily(HadamardFrame(dim=5, size=16), 4)
