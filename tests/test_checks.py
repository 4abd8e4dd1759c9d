import numpy as np
import pytest

from sstq.checks import check_number


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -0.1, 5.1, 10**400, -(10**5000), "1", True, None],
    ids=lambda value: type(value).__name__,  # pytest cannot print the long ones
)
@pytest.mark.parametrize("integer", [False, True])
def test_what_is_no_number_in_the_range_is_refused_by_name(value, integer):
    with pytest.raises(
        ValueError, match=r"^x must be an? \w+ in \[0, 5\], got "
    ) as refusal:
        check_number("x", value, 0, 5, integer=integer)
    assert len(str(refusal.value)) < 100


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2)])
def test_integers_of_all_kinds_become_python_s(value):
    assert type(check_number("x", value, 0, 5, integer=True)) is int
    assert type(check_number("x", value, 0, 1e100)) is float


def test_a_number_in_single_precision_is_compared_in_double():
    assert check_number("x", np.float32(2.0), 1e-100, 1e100) == 2.0
