"""Explicit vectors for Numba: Hadamard butterflies on LLVM vectors of VECTOR_WIDTH float32.

LLVM does not vectorise Numba's loops over short strides well, so the innermost passes are emitted here as LLVM
instructions. The same code serves every processor; LLVM maps a vector to one or several registers.

All intrinsics are variations of one pass over a *column*, R vectors at a constant stride:

    load R vectors, radix-R butterfly [, middle operation, radix-R butterfly], store R vectors

The radix-R butterfly is the unnormalised R×R Hadamard matrix applied across the vectors, R = 2^bits. Arrays are
addressed by element offsets without bounds checks: callers own the geometry. Offsets and strides are int64.
"""

# ruff: noqa: ARG001  (Numba reads an intrinsic's parameters by inspection)
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from sstq.kernels.target import COUNTED_AT_A_TIME, MAX_RADIX_BITS, SQUARE_LANES, SUM_LANES, VECTOR_BITS, VECTOR_WIDTH

# One base block is transformed entirely in registers: the bits inside a vector and MAX_RADIX_BITS across vectors.
BASE_BITS = VECTOR_BITS + MAX_RADIX_BITS
BASE_SIZE = 1 << BASE_BITS

_INDEX = ir.IntType(64)
_LANE = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), VECTOR_WIDTH)
_LANES = ir.VectorType(_LANE, VECTOR_WIDTH)
_PREDICATE = ir.VectorType(ir.IntType(1), VECTOR_WIDTH)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)
_ZERO = ir.Constant(_VECTOR, None)
_BYTES = ir.VectorType(ir.IntType(8), COUNTED_AT_A_TIME)
_WIDE = ir.VectorType(ir.IntType(16), COUNTED_AT_A_TIME)
_COUNTS_OF_A_BYTE = 255
_FUSED = ("contract",)  # lets LLVM join a product and a sum into one instruction

# Takes the position of a vector in its column and the vector, returns its replacement.
_Middle = Callable[[int, Any], Any]


def _element_pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """Emit the address of array[offset]."""
    return builder.gep(make_array(array_type)(context, builder, value=array).data, [offset])


def _column_pointers(builder: Any, first: Any, stride: Any, count: int) -> list[Any]:
    """Emit the addresses first + k·stride, k < count."""
    return [builder.gep(first, [builder.mul(stride, ir.Constant(_INDEX, k))]) for k in range(count)]


def _load(builder: Any, pointer: Any) -> Any:
    # Alignment 4, that of a float: rows of the caller's arrays may start anywhere.
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _splat(builder: Any, scalar: Any, kind: Any = _VECTOR) -> Any:
    """Emit a vector of that type with `scalar` in every lane."""
    undefined = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(undefined, scalar, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(_LANE, kind.count), [0] * kind.count))


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
                upper, lower = vectors[k], vectors[k + half]
                vectors[k] = builder.fadd(upper, lower)
                vectors[k + half] = builder.fsub(upper, lower)
        half *= 2
    return vectors


def _butterfly_inside(builder: Any, vector: Any) -> Any:
    """Emit the Hadamard transform of the lanes of one vector: lane i becomes lane[i ^ half] ± lane[i]."""
    half = 1
    while half < VECTOR_WIDTH:
        partners = ir.Constant(_LANES, [lane ^ half for lane in range(VECTOR_WIDTH)])
        signs = ir.Constant(_VECTOR, [-1.0 if lane & half else 1.0 for lane in range(VECTOR_WIDTH)])
        swapped = builder.shuffle_vector(vector, _UNDEFINED, partners)
        vector = builder.fadd(swapped, builder.fmul(vector, signs, flags=_FUSED), flags=_FUSED)
        half *= 2
    return vector


def _emit_pass(builder: Any, sources: list[Any], targets: list[Any], middle: _Middle | None = None) -> None:
    """Emit the pass of the module's docstring, from the vectors at `sources` to those at `targets`."""
    vectors = _butterfly_across(builder, [_load(builder, pointer) for pointer in sources])
    if middle is not None:
        vectors = _butterfly_across(builder, [middle(k, vector) for k, vector in enumerate(vectors)])
    for vector, pointer in zip(vectors, targets, strict=True):
        _store(builder, vector, pointer)


def _transform_vector(_typing: Any, x: Any, offset: Any) -> Any:
    """Hadamard transform of the VECTOR_WIDTH floats from x[offset], in place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element_pointer(context, builder, signature.args[0], *arguments)
        _store(builder, _butterfly_inside(builder, _load(builder, pointer)), pointer)
        return context.get_dummy_value()

    return types.void(x, types.int64), generate


def _transform_base(_typing: Any, x: Any, offset: Any) -> Any:
    """Hadamard transform of the BASE_SIZE floats from x[offset], in place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = _element_pointer(context, builder, signature.args[0], *arguments)
        pointers = _column_pointers(builder, first, ir.Constant(_INDEX, VECTOR_WIDTH), 1 << MAX_RADIX_BITS)
        vectors = [_butterfly_inside(builder, _load(builder, pointer)) for pointer in pointers]
        for vector, pointer in zip(_butterfly_across(builder, vectors), pointers, strict=True):
            _store(builder, vector, pointer)
        return context.get_dummy_value()

    return types.void(x, types.int64), generate


def _make_butterfly(bits: int) -> Any:
    @intrinsic
    def butterfly(_typing: Any, x: Any, offset: Any, stride: Any, y: Any, y_offset: Any, y_stride: Any) -> Any:
        """Butterfly of one column of x, stored to a column of y (which may be the same)."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, offset, stride, y, y_offset, y_stride = arguments
            source = _element_pointer(context, builder, signature.args[0], x, offset)
            target = _element_pointer(context, builder, signature.args[3], y, y_offset)
            _emit_pass(
                builder,
                _column_pointers(builder, source, stride, 1 << bits),
                _column_pointers(builder, target, y_stride, 1 << bits),
            )
            return context.get_dummy_value()

        return types.void(x, types.int64, types.int64, y, types.int64, types.int64), generate

    return butterfly


def _make_masked_butterfly(bits: int) -> Any:
    @intrinsic
    def masked_butterfly(
        _typing: Any, x: Any, offset: Any, stride: Any, mask: Any, mask_offset: Any, mask_stride: Any
    ) -> Any:
        """Butterfly of one column, zero where the mask's bit is 0, butterfly again; in place.

        `mask` holds one unsigned word of VECTOR_WIDTH bits a vector, at its own offset and stride.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, offset, stride, mask, mask_offset, mask_stride = arguments
            first = _element_pointer(context, builder, signature.args[0], x, offset)
            pointers = _column_pointers(builder, first, stride, 1 << bits)
            first_word = _element_pointer(context, builder, signature.args[3], mask, mask_offset)
            words = _column_pointers(builder, first_word, mask_stride, 1 << bits)

            def keep_masked(k: int, vector: Any) -> Any:
                return builder.select(builder.bitcast(builder.load(words[k]), _PREDICATE), vector, _ZERO)

            _emit_pass(builder, pointers, pointers, keep_masked)
            return context.get_dummy_value()

        return types.void(x, types.int64, types.int64, mask, types.int64, types.int64), generate

    return masked_butterfly


def _make_clipped_butterfly(bits: int) -> Any:
    @intrinsic
    def clipped_butterfly(
        _typing: Any,
        a: Any,
        offset: Any,
        t: Any,
        t_offset: Any,
        stride: Any,
        scale: Any,
        rate: Any,
        cap: Any,
        box: Any,
        sums: Any,
        lane: Any,
    ) -> Any:
        """Butterfly of one column of a, one relaxed projection step, butterfly again; a and t change in place.

        The step, with rate = ω·scale:  t' = clip(t + clip(rate·a, ±cap), ±box);  a ← scale·a − (t' − t);  t ← t'. The
        products a·a, a·(t' − t) and (t' − t)², a without its scale, are added to the three times SUM_LANES `sums`, from
        the one of the column's first float on, `lane`.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, offset, t, t_offset, stride, *scalars, sums, lane = arguments
            first = _element_pointer(context, builder, signature.args[0], a, offset)
            pointers = _column_pointers(builder, first, stride, 1 << bits)
            first_t = _element_pointer(context, builder, signature.args[2], t, t_offset)
            t_pointers = _column_pointers(builder, first_t, stride, 1 << bits)
            first_sum = _element_pointer(context, builder, signature.args[9], sums, lane)
            sum_pointers = _column_pointers(builder, first_sum, ir.Constant(_INDEX, SUM_LANES), 3)
            scale, rate, cap, box = (_splat(builder, scalar) for scalar in scalars)
            minus_cap, minus_box = builder.fneg(cap), builder.fneg(box)
            totals = [_load(builder, pointer) for pointer in sum_pointers]

            def step(k: int, vector: Any) -> Any:
                old = _load(builder, t_pointers[k])
                move = _clip(builder, builder.fmul(vector, rate), minus_cap, cap)
                new = _clip(builder, builder.fadd(old, move), minus_box, box)
                _store(builder, new, t_pointers[k])
                taken = builder.fsub(new, old)
                # Not fused: plain loops could not do the same.
                for place, (left, right) in enumerate(((vector, vector), (vector, taken), (taken, taken))):
                    totals[place] = builder.fadd(totals[place], builder.fmul(left, right))
                return builder.fsub(builder.fmul(vector, scale, flags=_FUSED), taken, flags=_FUSED)

            _emit_pass(builder, pointers, pointers, step)
            for total, pointer in zip(totals, sum_pointers, strict=True):
                _store(builder, total, pointer)
            return context.get_dummy_value()

        place, single = types.int64, types.float32
        return types.void(a, place, t, place, place, single, single, single, single, sums, place), generate

    return clipped_butterfly


def _add_squares(_typing: Any, x: Any, count: Any, scale: Any, sums: Any) -> Any:
    """Add (scale·x[8·i + k])², i < count, to sums[k] for every k < 8, in double precision.

    LLVM does not find the vectors in eight sums that are written out.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, count, scale, sums = arguments
        x_type = signature.args[0]
        numbers = ir.VectorType(context.get_value_type(x_type.dtype), SQUARE_LANES)
        doubles = ir.VectorType(ir.DoubleType(), SQUARE_LANES)
        first = _element_pointer(context, builder, x_type, x, ir.Constant(_INDEX, 0))
        target = _element_pointer(context, builder, signature.args[3], sums, ir.Constant(_INDEX, 0))
        target = builder.bitcast(target, doubles.as_pointer())
        scales = _splat(builder, scale, doubles)
        total = cgutils.alloca_once_value(builder, builder.load(target, align=8))
        with cgutils.for_range(builder, count) as loop:
            pointer = builder.gep(first, [builder.mul(loop.index, ir.Constant(_INDEX, SQUARE_LANES))])
            vector = builder.load(builder.bitcast(pointer, numbers.as_pointer()), align=x_type.dtype.bitwidth // 8)
            if numbers != doubles:
                vector = builder.fpext(vector, doubles)
            scaled = builder.fmul(scales, vector)
            builder.store(builder.fadd(builder.load(total), builder.fmul(scaled, scaled)), total)
        builder.store(builder.load(total), target, align=8)
        return context.get_dummy_value()

    return types.void(x, types.int64, types.float64, sums), generate


def _add_up(builder: Any, vector: Any) -> Any:
    """Emit the sum of the COUNTED_AT_A_TIME lanes of a vector of integers."""
    half = COUNTED_AT_A_TIME // 2
    while half:
        lanes = ir.VectorType(_LANE, COUNTED_AT_A_TIME)
        partners = ir.Constant(lanes, [lane ^ half for lane in range(COUNTED_AT_A_TIME)])
        vector = builder.add(vector, builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), partners))
        half //= 2
    return builder.extract_element(vector, ir.Constant(_LANE, 0))


def _count_above(_typing: Any, x: Any, count: Any, bar: Any) -> Any:
    """How many of the first count·COUNTED_AT_A_TIME entries of the int8 array x are larger than `bar`.

    Every byte of a vector counts for itself until it might overflow. LLVM would count in wider lanes, of which a vector
    holds a quarter as many.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, count, bar = arguments
        zero, one, size = (ir.Constant(_INDEX, value) for value in (0, 1, COUNTED_AT_A_TIME))
        pointer = _element_pointer(context, builder, signature.args[0], x, zero)
        bars = _splat(builder, bar, _BYTES)
        total = cgutils.alloca_once_value(builder, zero)
        counts = cgutils.alloca_once_value(builder, ir.Constant(_BYTES, None))
        most = ir.Constant(_INDEX, _COUNTS_OF_A_BYTE)
        groups = builder.udiv(builder.add(count, ir.Constant(_INDEX, _COUNTS_OF_A_BYTE - 1)), most)
        with cgutils.for_range(builder, groups) as group:
            start = builder.mul(group.index, most)
            stop = builder.add(start, most)
            stop = builder.select(builder.icmp_signed("<", stop, count), stop, count)
            builder.store(ir.Constant(_BYTES, None), counts)
            with cgutils.for_range_slice(builder, start, stop, one) as (index, _):
                place = builder.gep(pointer, [builder.mul(index, size)])
                vector = builder.load(builder.bitcast(place, _BYTES.as_pointer()), align=1)
                larger = builder.sext(builder.icmp_signed(">", vector, bars), _BYTES)
                builder.store(builder.sub(builder.load(counts), larger), counts)
            found = _add_up(builder, builder.zext(builder.load(counts), _WIDE))
            builder.store(builder.add(builder.load(total), builder.zext(found, _INDEX)), total)
        return builder.load(total)

    return types.int64(x, types.int64, types.int8), generate


count_above: Any = intrinsic(_count_above)
add_squares: Any = intrinsic(_add_squares)
transform_vector: Any = intrinsic(_transform_vector)
transform_base: Any = intrinsic(_transform_base)
butterfly2, butterfly4, butterfly8 = (_make_butterfly(bits) for bits in range(1, 4))
masked1, masked2, masked4, masked8 = (_make_masked_butterfly(bits) for bits in range(4))
clipped1, clipped2, clipped4, clipped8 = (_make_clipped_butterfly(bits) for bits in range(4))
