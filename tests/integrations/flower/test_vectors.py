import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from sstq.integrations.flower.vectors import PrivateArrays, private_names

from .apps import DIM, NAMES, model, vector


def test_real_numbers_of_any_shape_make_up_the_vector():
    record = model(np.arange(DIM))
    assert private_names(record, ()) == NAMES
    arrays = PrivateArrays.of(record, NAMES)
    assert arrays.shapes == ((2, 2), (), (1,))
    assert arrays.dim == DIM
    assert np.array_equal(arrays.flatten(record), np.arange(DIM))


def test_adding_keeps_types_shapes_and_what_is_not_private():
    record = model()
    added = PrivateArrays.of(record, NAMES).add(record, np.arange(DIM) + 0.5)
    assert np.array_equal(vector(added), np.arange(DIM) + 0.5)
    for name in record:
        assert added[name].numpy().dtype == record[name].numpy().dtype
        assert added[name].numpy().shape == record[name].numpy().shape
    assert added["steps"].data == record["steps"].data


def test_names_and_patterns_freeze():
    assert private_names(model(), ["matrix"]) == ("scale", "bias")
    with pytest.raises(
        ValueError, match=r"frozen must name arrays of the model .* got 'martix'"
    ):
        private_names(model(), ["martix"])
    with pytest.raises(ValueError, match="must have an array to train"):
        private_names(model(), ["*"])


def test_complex_numbers_are_refused_by_name():
    with pytest.raises(ValueError, match="'w' is complex"):
        private_names(ArrayRecord({"w": Array(np.zeros(2, dtype=np.complex64))}), ())


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["matrix", "matrix"], "distinct"),
        (["matrix", "nothing"], "no array 'nothing'"),
        (["steps"], "'steps' must hold real numbers, got dtype int64"),
    ],
)
def test_arrays_that_cannot_be_private_are_refused(names, reason):
    with pytest.raises(ValueError, match=reason):
        PrivateArrays.of(model(), names)
