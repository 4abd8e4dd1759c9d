"""The names that a mechanism of your own is made of; everything else in sstq may change.

A mechanism is a subclass of `Mechanism` with a `name`, registered by the entry point group `sstq.mechanisms` of your
package (or by `sstq.register` for one process). It wires five parts:

- **options**: the arguments of its constructor, as given. `settle(given, solved)` is the last line of the constructor:
  it keeps both and runs the one exact check, with which reading JSON ends as well.
- **solved**: a frozen dataclass, a subclass of `Solved`: integers and decoding values. JSON and digest are this and
  nothing else. Integers that may exceed 2^53 have the type `Word`, tables of them `WordTable`, doubles `Values`.
- **input**: what a person holds: `Vectors` (the default), `GroupedVectors`, `Category` or `Record`.
- **draw**: the secret randomness. It has a `law()`, all probabilities as integers, and a `privacy_loss()`; a `Channel`,
  a `KClosest` and a `Law` are draws. A message takes `words_each` secret words, and the law says which of them it is
  about: the last one for a channel and for the half-space law, words 1 and 2 (from 0) for a two-level law. Whatever
  the other words decide must not depend on the data, or must be hidden by the draw. Continuous outputs have no law:
  then `exact` is False, and `law()` raises ValueError.
- **estimator**: how messages are added up to a table of integers, and what is estimated from it: a `FrameEstimator`
  (x̂ = d·w·u_j; the first field is the code of w, the second is j), a `SparseEstimator` (counts of messages that are
  numbers), a `VectorEstimator` (whole vectors), or your own `DenseEstimator`. Sums must not depend on order or
  partition. Its `decode(messages)` returns the estimates of single messages, (n, `estimate_dim`).

Beside them it has a `layout`, the fields of a message, and these methods:

- `encode_batch(batch)` returns one column per field, with the same work and words whatever the data are;
- `row_error(rows)` returns the mean and the variance of the estimate of each row, exactly;
- `largest_message()` is the largest norm of the estimate of one message.

Optional are `check_solved()` (values that do not belong together), `check_messages(messages)` (values that fields allow
but nobody sends), `unbiased`, `words_each`, `row_cost`, `seed_option`, `narrowed` and `variants`.
`sstq.testing.check_mechanism` checks all of it. examples/own-mechanism has two complete mechanisms as a package.

A study of your own is made of `Study` and `Question` of `sstq.studies`. Its entry point group is `sstq.studies`, and
`sstq.testing.check_study` checks it.
"""

from sstq.aggregation import (
    DenseEstimator,
    Estimate,
    Estimator,
    FrameEstimator,
    SparseEstimator,
    Sums,
    VectorEstimator,
)
from sstq.aggregation.aggregator import Aggregator
from sstq.aggregation.sparse_counts import sent_codes
from sstq.array_types import Floats, Floats32, Ints, Words
from sstq.checks import (
    RANGES,
    ArgumentError,
    check_argument,
    check_near,
    check_number,
    check_option,
)
from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.frames.kashin import CERTIFIED_RESIDUAL, represent
from sstq.frames.tight import (
    FourierFrame,
    Frame,
    HadamardFrame,
    IdentityFrame,
    OrthogonalFrame,
)
from sstq.inputs import Category, GroupedVectors, Input, LocalReport, Record, Vectors
from sstq.kernels import count_passed, draw_around, hadamard_transform
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.agreement import Ranges, Solved, Values, Word, WordList, WordTable
from sstq.mechanisms.base import (
    SIGNS,
    Batch,
    Columns,
    Draw,
    ExpectedError,
    Mechanism,
    Rows,
    Unbiased,
)
from sstq.mechanisms.framed import (
    FrameName,
    KashinMechanism,
    KashinSolved,
    Recipe,
    solve_kashin,
)
from sstq.mechanisms.registry import register
from sstq.mechanisms.sphere import mean_chi, random_directions
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field, FloatField, Layout
from sstq.randomness import streams
from sstq.randomness.secret import (
    BitSource,
    RngLike,
    bit_source,
    channel_words,
    normals,
    open_interval,
    unit_interval,
)
from sstq.scalar.channels import (
    Channel,
    FlatChannel,
    TableChannel,
    flat_channel,
    flat_channel_of_size,
)
from sstq.scalar.codebooks import interpolation, stochastic_round, uniform_codebook
from sstq.scalar.laws import EitherLaw, Law

__all__ = [
    "CERTIFIED_RESIDUAL",
    "RANGES",
    "SIGNS",
    "TOTAL",
    "Aggregator",
    "ArgumentError",
    "Batch",
    "BitSource",
    "Category",
    "Channel",
    "Column",
    "Columns",
    "DenseEstimator",
    "Draw",
    "EitherLaw",
    "Estimate",
    "Estimator",
    "ExpectedError",
    "Field",
    "FlatChannel",
    "FloatField",
    "Floats",
    "Floats32",
    "FourierFrame",
    "Frame",
    "FrameEstimator",
    "FrameName",
    "GroupedVectors",
    "HadamardFrame",
    "IdentityFrame",
    "Input",
    "Ints",
    "KClosest",
    "KashinMechanism",
    "KashinSolved",
    "Law",
    "Layout",
    "LocalReport",
    "Mechanism",
    "Messages",
    "OrthogonalFrame",
    "Ranges",
    "Recipe",
    "Record",
    "RngLike",
    "Rows",
    "Solved",
    "SparseEstimator",
    "Sums",
    "TableChannel",
    "Unbiased",
    "Values",
    "VectorEstimator",
    "Vectors",
    "Word",
    "WordList",
    "WordTable",
    "Words",
    "bit_source",
    "channel_words",
    "check_argument",
    "check_near",
    "check_number",
    "check_option",
    "count_passed",
    "draw_around",
    "exp_lower",
    "flat_channel",
    "flat_channel_of_size",
    "hadamard_transform",
    "interpolation",
    "log_upper",
    "mean_chi",
    "normals",
    "open_interval",
    "random_directions",
    "register",
    "represent",
    "row_chunks",
    "sent_codes",
    "solve_kashin",
    "stochastic_round",
    "streams",
    "uniform_codebook",
    "unit_interval",
    "whole_budget",
]
