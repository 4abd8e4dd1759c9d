"""Whether the compiler at hand takes the explicit vectors of `sstq.kernels.vectors`.

They are LLVM instructions of our own beside those that Numba makes, so a processor or a version of llvmlite that Numba
itself works with may refuse them. Then `sstq.kernels.fallback` does the same in plain loops: slower, bit for bit alike.
"""

import os
import warnings

from llvmlite import binding, ir
from numba.core.registry import cpu_target

CHOICES = ("auto", "vector", "plain")


def uses_vectors() -> bool:
    """Return whether kernels are made of explicit vectors: where a small sample compiles.

    The variable SSTQ_KERNELS decides otherwise: "plain" for loops, "vector" for vectors without trying.
    """
    choice = os.environ.get("SSTQ_KERNELS", "auto")
    if choice not in CHOICES:
        raise ValueError(f"SSTQ_KERNELS must be one of {', '.join(CHOICES)}, not {choice!r}")
    if choice != "auto":
        return choice == "vector"
    if not sample_compiles():
        warnings.warn(
            "this compiler refuses explicit vectors: plain kernels are used, with the same results, but several times "
            "slower (SSTQ_KERNELS=plain chooses them without this warning)",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def sample_compiles() -> bool:
    """Compile one function with every kind of instruction that the vectors need; nothing is run or kept."""
    triple, processor, features = cpu_target.target_context.codegen().magic_tuple()
    try:
        machine = binding.Target.from_triple(triple).create_target_machine(processor, features)
        return bool(machine.emit_object(binding.parse_assembly(str(_sample()))))
    except Exception:
        # Whatever is missing or refused, and in whatever way: the answer is no.
        return False


def _sample() -> ir.Module:
    """Emit a masked and clipped butterfly and a count of bytes, with the calls that `sstq.kernels.vectors` makes."""
    vector, lanes = ir.VectorType(ir.FloatType(), 8), ir.VectorType(ir.IntType(32), 8)
    floats = ir.FloatType().as_pointer()
    module = ir.Module("sstq_sample")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [floats, ir.IntType(8)]), "sample")
    builder = ir.IRBuilder(function.append_basic_block())
    pointer, word = function.args
    second = builder.gep(pointer, [ir.Constant(ir.IntType(64), 8)])
    loaded = builder.load(builder.bitcast(second, vector.as_pointer()), align=4)
    undefined = ir.Constant(vector, ir.Undefined)
    swapped = builder.shuffle_vector(loaded, undefined, ir.Constant(lanes, [lane ^ 1 for lane in range(8)]))
    product = builder.fmul(loaded, swapped, flags=("contract",))
    joined = builder.fsub(builder.fadd(product, swapped, flags=("contract",)), builder.fneg(loaded))
    chosen = builder.bitcast(word, ir.VectorType(ir.IntType(1), 8))
    single = builder.insert_element(undefined, ir.Constant(ir.FloatType(), 0), ir.Constant(ir.IntType(32), 0))
    kept = builder.select(chosen, joined, single)
    smaller = builder.select(builder.fcmp_ordered("<", kept, loaded), kept, loaded)
    builder.store(smaller, builder.bitcast(pointer, vector.as_pointer()), align=4)
    doubles = ir.VectorType(ir.DoubleType(), 8)
    builder.store(builder.fpext(loaded, doubles), builder.bitcast(pointer, doubles.as_pointer()), align=8)
    bytes_, wide = ir.VectorType(ir.IntType(8), 32), ir.VectorType(ir.IntType(16), 32)
    numbers = builder.load(builder.bitcast(pointer, bytes_.as_pointer()), align=1)
    larger = builder.sext(builder.icmp_signed(">", numbers, ir.Constant(bytes_, None)), bytes_)
    counts = builder.zext(builder.sub(numbers, larger), wide)
    partners = ir.Constant(ir.VectorType(ir.IntType(32), 32), [lane ^ 16 for lane in range(32)])
    sums = builder.add(counts, builder.shuffle_vector(counts, ir.Constant(wide, ir.Undefined), partners))
    first = builder.extract_element(sums, ir.Constant(ir.IntType(32), 0))
    builder.store(first, builder.bitcast(pointer, ir.IntType(16).as_pointer()), align=2)
    builder.ret_void()
    return module
