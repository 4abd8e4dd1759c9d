"""The paper's two tables in measured numbers, and the time of a round."""

from __future__ import annotations

import math

from paper.reproduction.jobs import ORDER_EPSILONS, Job
from paper.reproduction.lines import Line, Results, Section, judge
from paper.reproduction.methods import METHODS
from paper.reproduction.printed import PaperNumber, paper_number
from paper.reproduction.scales import Scale

__all__ = ["tables_jobs", "tables_section"]

_BITS = 4
_NETWORK_DIMS = (25_450, 98_666)
# Two dimensions with the same redundancy N/d = 4, so that the frame does not enter the exponent.
_ORDER_DIMS = (1024, 4096)
_ORDER_METHODS = (
    "vqsgd",
    "sqkr-dense",
    "sqkr",
    "privunit",
    "sstq-uniform",
    "sstq-optimized",
    "sstq-metric",
    "sstq-metric-sharp",
    "sstq-certified",
    "sstq-optimal",
    "frameunit",
    "privunitg",
)
_ORDERS = {"vqsgd": 3.0, "sqkr-dense": 1.0, "sqkr": 1.0, "privunit": 1.0} | dict.fromkeys(
    ("sstq-uniform", "sstq-optimized", "sstq-metric", "sstq-metric-sharp"), 1.0
)
_TEXT = """
Bits: of one message at the dimensions of the two networks (the paper's Table 2).

Orders: Table 1 has O(d³) for vqSGD and O(d) for all others. Here is the exponent between the exact errors of a unit
vector at d = {low:,} and {high:,} at ε = {small:g}; the remark has the error itself at ε = {small:g} and {large:g},
divided by d.

Time: a round of 100 clients with its gradients, messages, mean and step, on all cores of this machine; the fastest of
a few, because other work on the machine only ever adds. The paper's are of a single CPU that is not named, so the ratio
is for orientation.
"""
_SQKR_BITS = (
    "The coordinates are those of the Kashin representation, of which there are N and not d, so an index takes "
    "⌈log₂ N⌉ bits: one more each."
)


def tables_jobs(scale: Scale) -> list[Job]:
    """Exact errors for Table 1, and timed rounds."""
    orders = [Job("orders", method, 0, _BITS, 0, dim) for method in _ORDER_METHODS for dim in _ORDER_DIMS]
    return orders + [
        Job("timing", method, 0, _BITS, scale.timed_rounds, dim)
        for dim in scale.timing_dims
        for method in scale.methods
    ]


def tables_section(scale: Scale, results: Results) -> Section:
    """Compare Tables 1 and 2 line by line, and seconds per round."""
    lines = [_bits_line(method, dim) for dim in _NETWORK_DIMS for method in scale.methods]
    lines += [_order_line(method, results) for method in _ORDER_METHODS]
    lines += [_time_line(job, results[job]["seconds"]) for job in tables_jobs(scale) if job.kind == "timing"]
    small, large = ORDER_EPSILONS
    text = _TEXT.format(low=_ORDER_DIMS[0], high=_ORDER_DIMS[1], small=small, large=large)
    return Section("tables", "Tables: bits, orders of the error, and time", text, lines, ())


def _bits_line(method: str, dim: int) -> Line:
    bits = METHODS[method].build(dim, 1.0, _BITS).message_bits
    paper = paper_number("bits", f"d = {dim}", method)
    verdict = judge(bits, paper)
    remark = _SQKR_BITS if method == "sqkr" else ""
    return Line(f"bits, d = {dim:,}", method, METHODS[method].label, bits, 0.0, 1, bits, paper, verdict, remark, "bits")


def _order_line(method: str, results: Results) -> Line:
    low, high = (results[Job("orders", method, 0, _BITS, 0, dim)] for dim in _ORDER_DIMS)
    exponent = math.log(high["mse"][0] / low["mse"][0]) / math.log(_ORDER_DIMS[1] / _ORDER_DIMS[0])
    paper = None
    if method in _ORDERS:
        paper = PaperNumber("orders", "exponent of d", method, _ORDERS[method], "Section 1, Table 1")
    errors = (
        f"ε = {epsilon:g}: {mse / _ORDER_DIMS[1]:.4g}" for epsilon, mse in zip(ORDER_EPSILONS, high["mse"], strict=True)
    )
    remark = f"Error over d: {', '.join(errors)}; {high['message_bits']:,} bits."
    verdict = judge(exponent, paper, absolute=0.1)
    return Line("exponent of d", method, METHODS[method].label, exponent, 0.0, 1, exponent, paper, verdict, remark)


def _time_line(job: Job, seconds: list[float]) -> Line:
    fastest = min(seconds)
    paper = paper_number("timing", f"d = {job.dim}", job.method)
    remark = "" if paper is None else f"{paper.value / fastest:.0f} times as fast as the paper's."
    setting = f"seconds per round, d = {job.dim:,}"
    return Line(setting, job.method, METHODS[job.method].label, fastest, 0.0, 1, fastest, paper, "", remark, "s")
