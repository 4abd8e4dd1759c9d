"""Explicit vectors for Numba: Hadamard butterflies on LLVM vectors of VECTOR_WIDTH float32.

LLVM does not vectorise Numba's loops over short strides well, so the innermost passes are emitted here as LLVM
instructions. The same code serves every processor; LLVM maps a vector to one or several registers.

All butterflies are variations of one pass over a *column*, R vectors at a constant stride:

    load R vectors, radix-R butterfly [, middle operation, radix-R butterfly], store R vectors

The radix-R butterfly is the unnormalised R×R Hadamard matrix applied across the vectors. Arrays are addressed by
element offsets without bounds checks: callers own the geometry. Offsets and strides are int64.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from sstq.kernels.fallback import COUNTED_AT_A_TIME, MAX_RADIX_BITS, SQUARE_LANES, SUM_LANES


def _choose_vector_width() -> int:
    """Return the float32 lanes of a vector: 16 where Numba targets AVX-512, elsewhere 8 (AVX2, two NEON registers).

    The features are those of Numba's own code generator, which follows NUMBA_CPU_NAME and NUMBA_CPU_FEATURES. The
    variable SSTQ_VECTOR_WIDTH overrides the choice, so that the wide code can be tested on any machine.
    """
    override = os.environ.get("SSTQ_VECTOR_WIDTH")
    if override not in {None, "8", "16"}:
        raise ValueError(f"SSTQ_VECTOR_WIDTH must be 8 or 16, got {override!r}")
    _triple, _cpu_name, features = cpu_target.target_context.codegen().magic_tuple()
    return int(override or (16 if "+avx512f" in features.split(",") else 8))


VECTOR_WIDTH = _choose_vector_width()

_INDEX, _LANE = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), VECTOR_WIDTH)
_DOUBLES = ir.VectorType(ir.DoubleType(), SQUARE_LANES)
_PREDICATE = ir.VectorType(ir.IntType(1), VECTOR_WIDTH)
_ZERO = ir.Constant(_VECTOR, None)
_BYTES = ir.VectorType(ir.IntType(8), COUNTED_AT_A_TIME)
_WIDE = ir.VectorType(ir.IntType(16), COUNTED_AT_A_TIME)
_COUNTS_OF_A_BYTE = 255
_FUSED = ("contract",)  # lets LLVM join a product and a sum into one instruction

# The types of an intrinsic's arguments.
_ARRAY, _PLACE, _FACTORS = None, types.int64, types.UniTuple(types.float32, 4)


def _emits(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of a function that emits instructions; arrays arrive as the address of their first element."""

    def make(emit: Callable[..., Any]) -> Any:
        @wraps(emit)  # Numba reads the parameters by inspection
        def define(_typing: Any, *given: Any) -> Any:
            signature = result(*(own if kind is _ARRAY else kind for kind, own in zip(kinds, given, strict=True)))

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                values = [
                    make_array(kind)(context, builder, value=value).data if isinstance(kind, types.Array) else value
                    for kind, value in zip(signature.args, arguments, strict=True)
                ]
                returned = emit(builder, *values)
                return context.get_dummy_value() if returned is None else returned

            return signature, generate

        made: Any = intrinsic(define)
        made.emit = emit
        return made

    return make


def _column(builder: Any, data: Any, offset: Any, stride: Any, count: int) -> list[Any]:
    """Emit the addresses of data[offset + k·stride], k < count."""
    first = builder.gep(data, [offset])
    return [builder.gep(first, [builder.mul(stride, ir.Constant(_INDEX, k))]) for k in range(count)]


def _load(builder: Any, pointer: Any) -> Any:
    # Alignment 4, that of a float: rows of the caller's arrays may start anywhere.
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _shuffle(builder: Any, vector: Any, lanes: list[int]) -> Any:
    """Emit the vector of those lanes of another."""
    chosen = ir.Constant(ir.VectorType(_LANE, len(lanes)), lanes)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


def _splat(builder: Any, scalar: Any, kind: Any = _VECTOR) -> Any:
    """Emit a vector of that type with `scalar` in every lane."""
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(_LANE, 0))
    return _shuffle(builder, single, [0] * kind.count)


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
                vectors[k], vectors[k + half] = builder.fadd(upper, lower), builder.fsub(upper, lower)
        half *= 2
    return vectors


def _butterfly_inside(builder: Any, vector: Any) -> Any:
    """Emit the Hadamard transform of the lanes of one vector: lane i becomes lane[i ^ half] ± lane[i]."""
    half = 1
    while half < VECTOR_WIDTH:
        signs = ir.Constant(_VECTOR, [-1.0 if lane & half else 1.0 for lane in range(VECTOR_WIDTH)])
        swapped = _shuffle(builder, vector, [lane ^ half for lane in range(VECTOR_WIDTH)])
        vector = builder.fadd(swapped, builder.fmul(vector, signs, flags=_FUSED), flags=_FUSED)
        half *= 2
    return vector


def _emit_pass(builder: Any, sources: list[Any], targets: list[Any], middle: Callable[..., Any] | None = None) -> None:
    """Emit the pass of the module's docstring; middle(k, vector) returns the replacement of a column's k-th vector."""
    vectors = _butterfly_across(builder, [_load(builder, pointer) for pointer in sources])
    if middle is not None:
        vectors = _butterfly_across(builder, [middle(k, vector) for k, vector in enumerate(vectors)])
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
    pointers = _column(builder, x, offset, ir.Constant(_INDEX, VECTOR_WIDTH), 1 << MAX_RADIX_BITS)
    vectors = [_butterfly_inside(builder, _load(builder, pointer)) for pointer in pointers]
    for vector, pointer in zip(_butterfly_across(builder, vectors), pointers, strict=True):
        _store(builder, vector, pointer)


def _make_butterfly(count: int) -> Any:
    @_emits(types.void, _ARRAY, _PLACE, _PLACE, _ARRAY, _PLACE, _PLACE)
    def butterfly(builder: Any, x: Any, offset: Any, stride: Any, y: Any, y_offset: Any, y_stride: Any) -> None:
        """Butterfly of one column of x, stored to a column of y (which may be the same)."""
        sources = _column(builder, x, offset, stride, count)
        _emit_pass(builder, sources, _column(builder, y, y_offset, y_stride, count))

    return butterfly


def _make_masked_butterfly(count: int) -> Any:
    @_emits(types.void, _ARRAY, _PLACE, _PLACE, _ARRAY, _PLACE, _PLACE)
    def masked(builder: Any, x: Any, offset: Any, stride: Any, mask: Any, mask_offset: Any, mask_stride: Any) -> None:
        """Butterfly of one column, zero where the mask's bit is 0, butterfly again; a word of bits per vector."""
        pointers = _column(builder, x, offset, stride, count)
        words = _column(builder, mask, mask_offset, mask_stride, count)

        def keep_masked(k: int, vector: Any) -> Any:
            return builder.select(builder.bitcast(builder.load(words[k]), _PREDICATE), vector, _ZERO)

        _emit_pass(builder, pointers, pointers, keep_masked)

    return masked


def _make_clipped_butterfly(count: int) -> Any:
    @_emits(types.void, _ARRAY, _PLACE, _ARRAY, _PLACE, _PLACE, _FACTORS, _ARRAY, _PLACE)
    def clipped(
        builder: Any, a: Any, offset: Any, t: Any, t_offset: Any, stride: Any, factors: Any, sums: Any, lane: Any
    ) -> None:
        """Butterfly of one column of a, one relaxed projection step, butterfly again; a and t change in place.

        The step, with factors (scale, rate, cap, box) and rate = ω·scale:

            t' = clip(t + clip(rate·a, ±cap), ±box);  a ← scale·a − (t' − t);  t ← t'.

        The products a·a, a·(t' − t) and (t' − t)², a without its scale, are added to the three times SUM_LANES `sums`,
        from the one of the column's first float on, `lane`.
        """
        pointers = _column(builder, a, offset, stride, count)
        t_pointers = _column(builder, t, t_offset, stride, count)
        sum_pointers = _column(builder, sums, lane, ir.Constant(_INDEX, SUM_LANES), 3)
        scale, rate, cap, box = (_splat(builder, builder.extract_value(factors, k)) for k in range(4))
        minus_cap, minus_box = builder.fneg(cap), builder.fneg(box)
        totals = [_load(builder, pointer) for pointer in sum_pointers]

        def step(k: int, vector: Any) -> Any:
            old = _load(builder, t_pointers[k])
            move = _clip(builder, builder.fmul(vector, rate), minus_cap, cap)
            new = _clip(builder, builder.fadd(old, move), minus_box, box)
            _store(builder, new, t_pointers[k])
            taken = builder.fsub(new, old)
            # Nothing is fused: plain loops and other languages could not do the same.
            for place, (left, right) in enumerate(((vector, vector), (vector, taken), (taken, taken))):
                totals[place] = builder.fadd(totals[place], builder.fmul(left, right))
            return builder.fsub(builder.fmul(vector, scale), taken)

        _emit_pass(builder, pointers, pointers, step)
        for total, pointer in zip(totals, sum_pointers, strict=True):
            _store(builder, total, pointer)

    return clipped


@_emits(types.void, _ARRAY, _PLACE, types.float64, _ARRAY)
def add_squares(builder: Any, x: Any, count: Any, scale: Any, sums: Any) -> None:
    """Add (scale·x[8·i + k])², i < count, to sums[k] for every k < 8, in double precision."""
    number = x.type.pointee
    numbers, size = ir.VectorType(number, SQUARE_LANES), 4 if number == ir.FloatType() else 8
    target = builder.bitcast(sums, _DOUBLES.as_pointer())
    scales = _splat(builder, scale, _DOUBLES)
    total = cgutils.alloca_once_value(builder, builder.load(target, align=8))
    with cgutils.for_range(builder, count) as loop:
        pointer = builder.gep(x, [builder.mul(loop.index, ir.Constant(_INDEX, SQUARE_LANES))])
        vector = builder.load(builder.bitcast(pointer, numbers.as_pointer()), align=size)
        if numbers != _DOUBLES:
            vector = builder.fpext(vector, _DOUBLES)
        scaled = builder.fmul(scales, vector)
        builder.store(builder.fadd(builder.load(total), builder.fmul(scaled, scaled)), total)
    builder.store(builder.load(total), target, align=8)


def _add_up(builder: Any, vector: Any) -> Any:
    """Emit the sum of the lanes of a vector of integers."""
    half = vector.type.count // 2
    while half:
        vector = builder.add(vector, _shuffle(builder, vector, [lane ^ half for lane in range(vector.type.count)]))
        half //= 2
    return builder.extract_element(vector, ir.Constant(_LANE, 0))


@_emits(types.int64, _ARRAY, _PLACE, types.int8)
def count_above(builder: Any, x: Any, count: Any, bar: Any) -> Any:
    """How many of the first count·COUNTED_AT_A_TIME entries of the int8 array x are larger than `bar`.

    Every byte of a vector counts for itself until it might overflow; LLVM would count in wider, and so fewer, lanes.
    """
    most, size = ir.Constant(_INDEX, _COUNTS_OF_A_BYTE), ir.Constant(_INDEX, COUNTED_AT_A_TIME)
    bars = _splat(builder, bar, _BYTES)
    total = cgutils.alloca_once_value(builder, ir.Constant(_INDEX, 0))
    counts = cgutils.alloca_once_value(builder, ir.Constant(_BYTES, None))
    groups = builder.udiv(builder.add(count, ir.Constant(_INDEX, _COUNTS_OF_A_BYTE - 1)), most)
    with cgutils.for_range(builder, groups) as group:
        start = builder.mul(group.index, most)
        stop = builder.add(start, most)
        stop = builder.select(builder.icmp_signed("<", stop, count), stop, count)
        builder.store(ir.Constant(_BYTES, None), counts)
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(_INDEX, 1)) as (index, _):
            place = builder.gep(x, [builder.mul(index, size)])
            vector = builder.load(builder.bitcast(place, _BYTES.as_pointer()), align=1)
            larger = builder.sext(builder.icmp_signed(">", vector, bars), _BYTES)
            builder.store(builder.sub(builder.load(counts), larger), counts)
        found = _add_up(builder, builder.zext(builder.load(counts), _WIDE))
        builder.store(builder.add(builder.load(total), builder.zext(found, _INDEX)), total)
    return builder.load(total)


butterfly2, butterfly4, butterfly8 = (_make_butterfly(count) for count in (2, 4, 8))
masked1, masked2, masked4, masked8 = (_make_masked_butterfly(count) for count in (1, 2, 4, 8))
clipped1, clipped2, clipped4, clipped8 = (_make_clipped_butterfly(count) for count in (1, 2, 4, 8))


def sample_compiles() -> bool:
    """Whether the compiler at hand takes one pass of every kind; nothing is run or kept."""
    numbers, double, octet = ir.FloatType().as_pointer(), ir.DoubleType(), ir.IntType(8)
    words, factors = ir.IntType(VECTOR_WIDTH).as_pointer(), ir.ArrayType(ir.FloatType(), 4)
    samples = {
        transform_base: (numbers, _INDEX),
        masked1: (numbers, _INDEX, _INDEX, words, _INDEX, _INDEX),
        clipped1: (numbers, _INDEX, numbers, _INDEX, _INDEX, factors, numbers, _INDEX),
        add_squares: (numbers, _INDEX, double, double.as_pointer()),
        count_above: (octet.as_pointer(), _INDEX, octet),
    }
    module = ir.Module("sstq_sample")
    triple, processor, features = cpu_target.target_context.codegen().magic_tuple()
    try:
        for number, (sample, kinds) in enumerate(samples.items()):
            function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), f"sample{number}")
            builder = ir.IRBuilder(function.append_basic_block())
            sample.emit(builder, *function.args)
            builder.ret_void()
        machine = binding.Target.from_triple(triple).create_target_machine(processor, features)
        return bool(machine.emit_object(binding.parse_assembly(str(module))))
    except Exception:  # whatever is missing or refused, and in whatever way
        return False
