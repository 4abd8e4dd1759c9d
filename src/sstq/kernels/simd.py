"""Explicit vectors for Numba: Hadamard butterflies on LLVM vectors of VECTOR_WIDTH numbers.

LLVM does not vectorise Numba's loops over short strides well, so the innermost passes are emitted here as LLVM
instructions. The same code serves every processor; LLVM maps a vector to one or several registers.

All butterflies are variations of one pass over a *column*, R vectors at a constant stride:

    load R vectors, radix-R butterfly [, middle operation, radix-R butterfly], store R vectors

No other module of the library uses what Numba does not document. Plain loops would need none of it: in blocks, with
radix-4 passes and interleaved loads for the lowest bits, they transform in 1.2 × the time. But the step of a Kashin
representation with its sums in a fixed order is not vectorised, and unfused sweeps cost the rest: encoding of SSTQ at
d = 25,450 would take about 1.5 × as long.

The radix-R butterfly is the unnormalised R×R Hadamard matrix applied across the vectors. Arrays are addressed by
element offsets without bounds checks: callers own the geometry. Offsets and strides are int64.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

TARGET: tuple[str, str, str] = cpu_target.target_context.codegen().magic_tuple()
"""What Numba compiles for: the triple, the processor and its features."""

VECTOR_WIDTH = 16 if "+avx512f" in TARGET[2].split(",") else 8
"""The floats of a vector: 16 where Numba targets AVX-512, elsewhere 8 (AVX2, two NEON registers)."""

MAX_RADIX_BITS = 3
"""A radix-R pass holds R vectors in registers. AVX-512 has enough of them for 16, but on an AMD processor that was up
to twice as slow as 8 from N = 2^14 on, and a tenth faster at 2^12."""

SUM_LANES = 16
"""Sums are kept in so many parts, whatever the vectors are, so that the order of additions is the same everywhere."""

CACHE_LINE = 16  # float32 in 64 bytes

inner: Any = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
"""Compiles a function that only kernels call, in an eighth less time than one that Python and C can call."""


def is_copied(function: Any) -> bool:
    """Whether a compiled function is copied into its callers, before they are compiled."""
    return bool(function.targetoptions.get("inline") == "always")


_INDEX = ir.IntType(64)
_LANE = ir.IntType(32)
_SQUARE_LANES = 8
_DOUBLES = ir.VectorType(ir.DoubleType(), _SQUARE_LANES)
_PREDICATE = ir.VectorType(ir.IntType(1), VECTOR_WIDTH)
_FUSED = ("contract",)  # lets LLVM join a product and a sum into one instruction

# The types of an intrinsic's arguments.
_ARRAY = None
_PLACE = types.int64
_FACTORS = types.UniTuple(types.float32, 4)


def _emits(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of a function that emits instructions; arrays arrive as the address of their first element."""

    def make(emit: Callable[..., Any]) -> Any:
        @wraps(emit)  # Numba reads the parameters by inspection
        def define(_typing: Any, *given: Any) -> Any:
            signature = result(
                *(
                    actual if kind is _ARRAY else kind
                    for kind, actual in zip(kinds, given, strict=True)
                )
            )

            def generate(
                context: Any, builder: Any, signature: Any, arguments: Any
            ) -> Any:
                values = [
                    make_array(kind)(context, builder, value=value).data
                    if isinstance(kind, types.Array)
                    else value
                    for kind, value in zip(signature.args, arguments, strict=True)
                ]
                returned = emit(builder, *values)
                return context.get_dummy_value() if returned is None else returned

            return signature, generate

        return intrinsic(define)

    return make


def _of_radix(*kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic whose first argument is the log₂ of the column's length, up to MAX_RADIX_BITS."""

    def make(emit: Callable[..., Any]) -> Any:
        @wraps(emit)
        def choose(builder: Any, bits: Any, *arguments: Any) -> None:
            for radix_bits in range(MAX_RADIX_BITS + 1):
                with builder.if_then(
                    builder.icmp_signed("==", bits, ir.Constant(_INDEX, radix_bits))
                ):
                    emit(builder, 1 << radix_bits, *arguments)

        return _emits(types.void, _PLACE, *kinds)(choose)

    return make


def _column(builder: Any, data: Any, offset: Any, stride: Any, count: int) -> list[Any]:
    """Emit the addresses of data[offset + k·stride], k < count."""
    first = builder.gep(data, [offset])
    return [
        builder.gep(first, [builder.mul(stride, ir.Constant(_INDEX, k))])
        for k in range(count)
    ]


def _as_vector(
    builder: Any, pointer: Any, count: int = VECTOR_WIDTH
) -> tuple[Any, int]:
    """Emit the address of a vector that starts at a number; and its alignment: rows may start at any number."""
    number = pointer.type.pointee
    vector = ir.VectorType(number, count)
    return builder.bitcast(
        pointer, vector.as_pointer()
    ), 4 if number == ir.FloatType() else 8


def _load(builder: Any, pointer: Any, count: int = VECTOR_WIDTH) -> Any:
    address, alignment = _as_vector(builder, pointer, count)
    return builder.load(address, align=alignment)


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    address, alignment = _as_vector(builder, pointer, vector.type.count)
    builder.store(vector, address, align=alignment)


def _shuffle(builder: Any, vector: Any, lanes: list[int]) -> Any:
    """Emit the vector of those lanes of another."""
    chosen = ir.Constant(ir.VectorType(_LANE, len(lanes)), lanes)
    return builder.shuffle_vector(
        vector, ir.Constant(vector.type, ir.Undefined), chosen
    )


def _splat(builder: Any, scalar: Any, count: int = VECTOR_WIDTH) -> Any:
    """Emit a vector with `scalar` in every lane."""
    empty = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    return _shuffle(
        builder,
        builder.insert_element(empty, scalar, ir.Constant(_LANE, 0)),
        [0] * count,
    )


def _clip(builder: Any, vector: Any, low: Any, high: Any) -> Any:
    """Emit min(max(vector, low), high); a comparison and a selection become one instruction each."""
    at_most = builder.select(builder.fcmp_ordered("<", vector, high), vector, high)
    return builder.select(builder.fcmp_ordered(">", at_most, low), at_most, low)


def _butterfly_across(builder: Any, vectors: list[Any]) -> list[Any]:
    """Emit the radix-R Hadamard butterfly across R vectors."""
    vectors = list(vectors)
    half = 1
    while half < len(vectors):
        for start in range(0, len(vectors), 2 * half):
            for k in range(start, start + half):
                upper = vectors[k]
                lower = vectors[k + half]
                vectors[k] = builder.fadd(upper, lower)
                vectors[k + half] = builder.fsub(upper, lower)
        half *= 2
    return vectors


def _butterfly_inside(builder: Any, vector: Any) -> Any:
    """Emit the Hadamard transform of the lanes of one vector: lane i becomes lane[i ^ half] ± lane[i]."""
    half = 1
    while half < VECTOR_WIDTH:
        signs = ir.Constant(
            vector.type, [-1.0 if lane & half else 1.0 for lane in range(VECTOR_WIDTH)]
        )
        swapped = _shuffle(
            builder, vector, [lane ^ half for lane in range(VECTOR_WIDTH)]
        )
        vector = builder.fadd(
            swapped, builder.fmul(vector, signs, flags=_FUSED), flags=_FUSED
        )
        half *= 2
    return vector


def _emit_pass(
    builder: Any,
    sources: list[Any],
    targets: list[Any],
    middle: Callable[..., Any] | None = None,
) -> None:
    """Emit the pass of the module's docstring; middle(k, vector) returns the replacement of a column's k-th vector."""
    vectors = _butterfly_across(
        builder, [_load(builder, pointer) for pointer in sources]
    )
    if middle is not None:
        vectors = _butterfly_across(
            builder, [middle(k, vector) for k, vector in enumerate(vectors)]
        )
    for vector, pointer in zip(vectors, targets, strict=True):
        _store(builder, vector, pointer)


@_emits(types.void, _ARRAY, _PLACE)
def transform_vector(builder: Any, x: Any, offset: Any) -> None:
    """Hadamard transform of the VECTOR_WIDTH floats from x[offset], in place."""
    pointer = builder.gep(x, [offset])
    _store(builder, _butterfly_inside(builder, _load(builder, pointer)), pointer)


@_emits(types.void, _ARRAY, _PLACE)
def transform_base(builder: Any, x: Any, offset: Any) -> None:
    """Hadamard transform of the BASE_SIZE floats from x[offset], in place."""
    pointers = _column(
        builder, x, offset, ir.Constant(_INDEX, VECTOR_WIDTH), 1 << MAX_RADIX_BITS
    )
    vectors = [
        _butterfly_inside(builder, _load(builder, pointer)) for pointer in pointers
    ]
    for vector, pointer in zip(
        _butterfly_across(builder, vectors), pointers, strict=True
    ):
        _store(builder, vector, pointer)


@_of_radix(_ARRAY, _PLACE, _PLACE, _ARRAY, _PLACE, _PLACE)
def butterfly(
    builder: Any,
    count: int,
    x: Any,
    offset: Any,
    stride: Any,
    y: Any,
    y_offset: Any,
    y_stride: Any,
) -> None:
    """Butterfly of one column of x, stored to a column of y (which may be the same)."""
    _emit_pass(
        builder,
        _column(builder, x, offset, stride, count),
        _column(builder, y, y_offset, y_stride, count),
    )


@_of_radix(_ARRAY, _PLACE, _PLACE, _ARRAY, _PLACE, _PLACE)
def masked(
    builder: Any,
    count: int,
    x: Any,
    offset: Any,
    stride: Any,
    mask: Any,
    mask_offset: Any,
    mask_stride: Any,
) -> None:
    """Butterfly of one column, zero where the mask's bit is 0, butterfly again; a word of bits per vector."""
    pointers = _column(builder, x, offset, stride, count)
    words = _column(builder, mask, mask_offset, mask_stride, count)

    def keep_masked(k: int, vector: Any) -> Any:
        chosen = builder.bitcast(builder.load(words[k]), _PREDICATE)
        return builder.select(chosen, vector, ir.Constant(vector.type, None))

    _emit_pass(builder, pointers, pointers, keep_masked)


@_of_radix(_ARRAY, _PLACE, _ARRAY, _PLACE, _PLACE, _FACTORS, _ARRAY, _PLACE)
def clipped(
    builder: Any,
    count: int,
    a: Any,
    offset: Any,
    t: Any,
    t_offset: Any,
    stride: Any,
    factors: Any,
    sums: Any,
    lane: Any,
) -> None:
    """Butterfly of one column of a, one relaxed projection step, butterfly again; a and t change in place.

    The step, with factors (scale, rate, cap, box) and rate = ω·scale:

        t' = clip(t + clip(rate·a, ±cap), ±box);  a ← scale·a − (t' − t);  t ← t'.

    The products a·a, a·(t' − t) and (t' − t)², a without its scale, are added to the three times SUM_LANES `sums`, from
    the one of the column's first float on, `lane`.
    """
    pointers = _column(builder, a, offset, stride, count)
    t_pointers = _column(builder, t, t_offset, stride, count)
    sum_pointers = _column(builder, sums, lane, ir.Constant(_INDEX, SUM_LANES), 3)
    scale, rate, cap, box = (
        _splat(builder, builder.extract_value(factors, k)) for k in range(4)
    )
    minus_cap = builder.fneg(cap)
    minus_box = builder.fneg(box)
    totals = [_load(builder, pointer) for pointer in sum_pointers]

    def step(k: int, vector: Any) -> Any:
        old = _load(builder, t_pointers[k])
        move = _clip(builder, builder.fmul(vector, rate), minus_cap, cap)
        new = _clip(builder, builder.fadd(old, move), minus_box, box)
        _store(builder, new, t_pointers[k])
        taken = builder.fsub(new, old)
        # Nothing is fused: other languages could not do the same.
        for place, (left, right) in enumerate(
            ((vector, vector), (vector, taken), (taken, taken))
        ):
            totals[place] = builder.fadd(totals[place], builder.fmul(left, right))
        return builder.fsub(builder.fmul(vector, scale), taken)

    _emit_pass(builder, pointers, pointers, step)
    for total, pointer in zip(totals, sum_pointers, strict=True):
        _store(builder, total, pointer)


@_emits(types.void, _ARRAY, _PLACE, types.float64, _ARRAY)
def add_squares(builder: Any, x: Any, count: Any, scale: Any, sums: Any) -> None:
    """Add (scale·x[8·i + k])², i < count, to sums[k] for every k < 8, in double precision."""
    scales = _splat(builder, scale, _SQUARE_LANES)
    total = cgutils.alloca_once_value(builder, _load(builder, sums, _SQUARE_LANES))
    with cgutils.for_range(builder, count) as loop:
        pointer = builder.gep(
            x, [builder.mul(loop.index, ir.Constant(_INDEX, _SQUARE_LANES))]
        )
        vector = _load(builder, pointer, _SQUARE_LANES)
        if vector.type != _DOUBLES:
            vector = builder.fpext(vector, _DOUBLES)
        scaled = builder.fmul(scales, vector)
        builder.store(
            builder.fadd(builder.load(total), builder.fmul(scaled, scaled)), total
        )
    _store(builder, builder.load(total), sums)


@inner
def aligned(size: int) -> Any:
    """Return `size` uninitialised float32 that start on a cache line, so that no vector straddles two."""
    buffer = np.empty(size + CACHE_LINE, np.float32)
    skipped = (-(buffer.ctypes.data // 4)) % CACHE_LINE
    return buffer[skipped : skipped + size]
